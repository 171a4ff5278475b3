"""How everything looks: one style sheet and one palette, built from a theme's roles. Spacing keeps to a grid of 4."""

from __future__ import annotations

from dataclasses import asdict
from string import Template

from PySide6.QtGui import QColor, QFontDatabase, QPalette

from app.theme import Theme, TypeScale

CORNER = 8
COLUMN = 760
"""The widest that a column of text gets, in pixels."""
SCROLL_BAR = 12

_SHEET = Template("""
QMainWindow, QWidget#page { background: $surface; }
QLabel { background: transparent; }
QLabel[level="display"] { font-size: ${display}px; font-weight: 600; }
QLabel[level="title"] { font-size: ${title}px; font-weight: 600; }
QLabel[level="author"] { font-size: ${small}px; font-weight: 600; }
QLabel[level="small"] { font-size: ${small}px; }
QLabel[tone="muted"] { color: $muted; }
QLabel[tone="accent"] { color: $accent; }
QLabel[tone="warn"] { color: $warn; }
QLabel[tone="bad"] { color: $bad; }

QPushButton {
    background: $raised; color: $text; border: 1px solid $border; border-radius: ${corner}px;
    padding: 7px 15px; min-height: 20px;
}
QPushButton:hover { border-color: $muted; }
QPushButton:pressed { background: $code; }
QPushButton:focus { border: 2px solid $accent; padding: 6px 14px; }
QPushButton:disabled { color: $muted; background: $code; border-color: $code; }
QPushButton[primary="true"] {
    background: $accent; background-clip: padding; color: $on_accent; font-weight: 600;
    border: 2px solid transparent; padding: 8px 16px;
}
QPushButton[primary="true"]:hover { border-color: $border; }
QPushButton[primary="true"]:disabled { color: $muted; background: $code; }
QPushButton[primary="true"]:focus { border-color: $text; padding: 8px 16px; }
QPushButton[primary="true"]:disabled { color: $muted; background: $code; border-color: transparent; }
QPushButton[example="true"] { text-align: left; }

QToolButton {
    background: transparent; color: $text; border: 2px solid transparent; border-radius: ${corner}px;
    padding: 4px;
}
QToolButton:hover { background: $code; }
QToolButton:pressed { background: $border; }
QToolButton:focus { border-color: $accent; }
QToolButton[filled="true"] { background: $accent; background-clip: padding; }
QToolButton[filled="true"]:hover { border-color: $border; }
QToolButton[filled="true"]:focus { border-color: $text; }
QToolButton[filled="true"]:disabled { background: $code; border-color: transparent; }
QToolButton[outlined="true"] { background: $raised; border: 1px solid $muted; padding: 5px; }
QToolButton[outlined="true"]:hover { background: $code; }
QToolButton[outlined="true"]:disabled { border-color: $border; }
QToolButton[outlined="true"]:focus { border: 2px solid $accent; padding: 4px; }
QToolButton[badge="true"] { background: $raised; border: 1px solid $muted; border-radius: 11px; padding: 0; }
QToolButton[badge="true"]:hover { background: $code; }
QToolButton[badge="true"]:focus { border: 2px solid $accent; }
QToolButton#modelsButton { padding-right: 0; }
QToolButton#modelsButton[here="true"] { background: $code; }
QToolButton[quiet="true"] { color: $muted; font-size: ${small}px; padding: 4px 6px; }
QToolButton[quiet="true"][tone="warn"] { color: $warn; }
QToolButton::menu-indicator { image: none; width: 0; }
QMenu { background: $raised; color: $text; border: 1px solid $border; padding: 4px; }
QMenu::item { padding: 6px 16px; border-radius: 4px; }
QMenu::item:selected { background: $code; }
QMenu::separator { height: 1px; background: $border; margin: 4px 0; }

QFrame#modelBar { background: $surface; border: none; border-bottom: 1px solid $border; }
QScrollArea#start { border: none; }
QScrollArea#conversation { background: $surface; border: 1px solid transparent; }
QScrollArea#conversation:focus { border: 1px solid $accent; }

QFrame[turn] { background: transparent; border: 1px solid transparent; border-radius: ${corner}px; }
QFrame[turn="user"] { background: $raised; border-color: $border; }
QTextEdit#body {
    background: transparent; color: $text; border: 1px solid transparent; border-radius: 4px;
    selection-background-color: $accent; selection-color: $on_accent;
}
QTextEdit#body:focus { border-color: $accent; }
QToolButton#thoughtsHeader, QToolButton#foldedBudgets {
    color: $muted; font-size: ${small}px; padding: 0 4px 0 0; margin-left: -2px;
}
QFrame#aside { background: transparent; border: none; border-left: 2px solid $border; }
QFrame#aside QTextEdit#body { color: $muted; }
QFrame#call { background: $code; border: none; border-radius: ${corner}px; }
QTextEdit#body[mono="true"] { font-family: $mono; font-size: ${small}px; }
QFrame#notice { background: $raised; border: 1px solid $bad; border-radius: ${corner}px; }

QFrame#composer { background: $raised; border: 1px solid $border; border-radius: ${corner}px; }
QFrame#composer[focused="true"] { border-color: $accent; }
QScrollArea#tray, QScrollArea#tray > QWidget > QWidget { background: transparent; border: none; }
QPlainTextEdit#draft {
    background: transparent; color: $text; border: none; placeholder-text-color: $muted;
    selection-background-color: $accent; selection-color: $on_accent;
}

QFrame#popover { background: $raised; border: 1px solid $border; }
QFrame#popover > QLabel { border: 1px solid transparent; border-radius: 4px; }
QFrame#popover > QLabel:focus { border-color: $accent; }
QTableWidget { background: transparent; color: $text; border: none; outline: none; font-size: ${small}px; }
QTableWidget::item { padding: 2px 4px; border: 1px solid transparent; border-radius: 4px; }
QTableWidget::item:focus { border-color: $accent; color: $text; }
QHeaderView { background: transparent; border: none; font-size: ${small}px; }
QHeaderView::section { background: transparent; color: $muted; border: none; padding: 2px 7px 2px 5px; }
QTableCornerButton::section { background: transparent; border: none; }

QProgressBar { background: $border; border: none; border-radius: 3px; min-height: 6px; max-height: 6px; }
QProgressBar::chunk { background: $accent; border-radius: 3px; }

QScrollBar:vertical { background: transparent; width: ${scroll_bar}px; margin: 0; border: none; }
QScrollBar::handle:vertical { background: $border; border-radius: 4px; min-height: 32px; margin: 2px; }
QScrollBar::handle:vertical:hover { background: $muted; }
QScrollBar::handle:vertical:disabled { background: transparent; }
QScrollBar::add-line, QScrollBar::sub-line { height: 0; width: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QSplitter::handle { background: $border; }

QFrame#modelsHeader, QFrame#importing { background: $surface; border: none; border-bottom: 1px solid $border; }
QScrollArea#computer { background: $surface; border: 1px solid transparent; }
QScrollArea#computer:focus { border-color: $accent; }
QScrollArea#computer > QWidget > QWidget { background: $surface; }
QFrame#block { background: transparent; border: none; border-top: 1px solid $border; }
QStackedWidget#details > QWidget { background: $surface; }
QScrollArea#pane, QScrollArea#pane > QWidget > QWidget { background: transparent; border: none; }
QFrame#actions { background: $raised; border: none; border-top: 1px solid $border; }
QPushButton[tab="true"] {
    background: transparent; color: $muted; border: 2px solid transparent; padding: 4px 10px; min-height: 20px;
}
QPushButton[tab="true"]:hover { background: $code; }
QPushButton[tab="true"]:checked { background: $code; color: $text; }
QPushButton[tab="true"]:focus { border-color: $accent; }
QPushButton[chip="true"] {
    background: transparent; color: $text; border: 1px solid $border; border-radius: ${corner}px;
    padding: 3px 9px; min-height: 20px; font-size: ${small}px;
}
QPushButton[chip="true"]:hover { border-color: $muted; }
QPushButton[chip="true"]:checked, QPushButton[chip="true"][filled="true"] {
    background: $code; color: $accent; border-color: $accent;
}
QPushButton[chip="true"]:focus { border: 2px solid $accent; padding: 2px 8px; }
QPushButton[chip="true"]::menu-indicator { image: none; width: 0; }
QLineEdit {
    background: $raised; color: $text; border: 1px solid $border; border-radius: ${corner}px; padding: 7px 8px;
    min-height: 20px; placeholder-text-color: $muted; selection-background-color: $accent;
    selection-color: $on_accent;
}
QLineEdit:focus { border: 2px solid $accent; padding: 6px 7px; }
QListView#rows { background: transparent; border: none; outline: none; padding: 8px 4px 0 16px; }
QTableView#offers { background: transparent; color: $text; border: none; outline: none; }
QTableView#offers QHeaderView::section {
    color: $muted; border: none; border-bottom: 1px solid $border; padding: 6px 12px;
}
QToolTip { background: $raised; color: $text; border: 1px solid $border; padding: 4px 8px; }
""")


def style_sheet(theme: Theme, scale: TypeScale) -> str:
    return _SHEET.substitute(
        asdict(theme),
        small=scale.small,
        title=scale.title,
        display=scale.display,
        mono=f'"{QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()}"',
        corner=CORNER,
        scroll_bar=SCROLL_BAR,
    )


def palette(theme: Theme) -> QPalette:
    """For what the style draws by itself: menus, placeholders, carets."""
    made = QPalette()
    roles = QPalette.ColorRole
    for colour, where in (
        (theme.surface, (roles.Window,)),
        (theme.raised, (roles.Base, roles.Button, roles.ToolTipBase)),
        (theme.code, (roles.AlternateBase,)),
        (theme.text, (roles.WindowText, roles.Text, roles.ButtonText, roles.ToolTipText)),
        (theme.muted, (roles.PlaceholderText,)),
        (theme.accent, (roles.Highlight, roles.Link, roles.Accent)),
        (theme.on_accent, (roles.HighlightedText,)),
        (theme.border, (roles.Mid, roles.Light, roles.Midlight, roles.Dark)),
    ):
        for role in where:
            made.setColor(role, QColor(colour))
    for role in (roles.WindowText, roles.Text, roles.ButtonText):
        made.setColor(QPalette.ColorGroup.Disabled, role, QColor(theme.muted))
    return made

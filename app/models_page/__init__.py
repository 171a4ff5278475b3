"""The Models page: models to recommend, those that are here, those on their way, and the Hub's to search.

Nothing here waits: what asks the Hub, reads files or works out a fit runs in `tasks.Tasks`, downloads in `desk.Desk`.
"""

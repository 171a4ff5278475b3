"""The chats on disk: SQLite, from the moment of sending. No Qt. `app.chats.store` is the way in."""

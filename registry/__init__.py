"""What finds, fetches and keeps models."""

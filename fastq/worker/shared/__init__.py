"""What the main process and the children tell each other about the app and its tasks."""

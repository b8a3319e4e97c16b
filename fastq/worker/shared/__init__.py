"""What main process and children exchange about the app and its tasks."""

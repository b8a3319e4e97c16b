"""The main process as a whole: its actors are made, started and stopped here."""

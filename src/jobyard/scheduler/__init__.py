"""The scheduler: fires schedules by having the store decide each due tick once."""

"""The dashboard: its page, scripts and style sheets."""

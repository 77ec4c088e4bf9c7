"""The GitHub runner manager: webhook events in, just-in-time runners out."""

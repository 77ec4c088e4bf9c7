"""The web shop that the example scans: it serves six sites on loopback."""

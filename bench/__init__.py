"""Speed against peers, as ratios: run with `python -m bench`."""

"""Rules of the GitHub runner manager: profiles, jobs that GitHub has queued, runners, and the plan between them."""

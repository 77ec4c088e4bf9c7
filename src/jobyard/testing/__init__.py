"""What tests of jobyard, and of applications that use it, need."""

"""Files: written whole or not at all, locks, sums, downloads and their cache, disk space, pictures."""

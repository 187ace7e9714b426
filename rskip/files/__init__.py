"""Files: atomic writes, locks, checksums, downloads and their cache, disk space, images."""

"""This project's evidence: records, claims, costs and figures. `make study` runs it; it is not installed."""

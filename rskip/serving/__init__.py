"""Serves models over HTTP: `rskip serve`. Needs the extra `serve`."""

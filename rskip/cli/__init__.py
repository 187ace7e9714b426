"""The `rskip` command: `main` finds the subcommands, each of which is a file of this package."""

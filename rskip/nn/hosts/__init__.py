"""What `adapt` does in addition for models of one library."""

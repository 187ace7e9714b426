"""Recipes, runs, records, and the tables made from records."""

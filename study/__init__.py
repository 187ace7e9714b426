"""This project's own evidence, which is not part of the product: records, claims, costs, figures; `make study`."""

"""Image captioning: image features to sentences, by the Transformer and the beam search that are here."""

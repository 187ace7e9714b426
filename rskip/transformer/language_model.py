"""The decoder-only language model. B batch, T length, P length of a prompt, K beams, C features, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rskip.connections.norms import set_eps
from rskip.settings.errors import SettingError
from rskip.transformer.attention import additive_mask
from rskip.transformer.config import LanguageModelConfig
from rskip.transformer.decoder import DecoderStack
from rskip.transformer.embedding import build_token_embedding
from rskip.transformer.initial_weights import draw_as_gpt2, remove_biases
from rskip.transformer.layers import LanguageModelLayer
from rskip.transformer.model import DecodingModel
from rskip.transformer.positions import first_position, token_positions
from rskip.transformer.rotary import Rotation, rotation_at
from rskip.transformer.state import IncrementalState, LayerCache


class PromptState(IncrementalState):
    """The positions so far, of the prompt and after it.

    `logits` (B, 1, V) are those after the prompt, until the first step; None if the prompt was empty.
    """

    attention: None = None
    logits: Tensor | None = None


class LanguageDecoder(DecoderStack):
    """The decoder of a language model. Padding, if any, is the padding of `embed_tokens`."""

    config: LanguageModelConfig

    def __init__(self, config: LanguageModelConfig, embed_tokens: nn.Embedding) -> None:
        numbers = range(1, config.decoder_layers + 1)
        super().__init__(config, embed_tokens, (LanguageModelLayer(config, number) for number in numbers))
        set_eps(self, config.norm_eps)
        if not config.biases:
            remove_biases(self)
        if config.initial_std is not None:
            draw_as_gpt2(self, config.initial_std)

    def features(self, tokens: Tensor, caches: list[LayerCache] | None = None) -> Tensor:
        """The last layer's output at every position of `tokens` (B, T). Shape: (B, T, C).

        Empty caches are filled with the keys and values of all positions.
        """
        positions = token_positions(tokens, self.padding_index)
        x = self.embed(tokens, positions, length=tokens.size(1))
        return self.run_layers(x, (self.left_padding_mask(tokens, x), self._rotation(positions)), caches)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of the token after each position of `tokens` (B, T)."""
        return self.output_projection(self.features(tokens))

    @torch.no_grad()
    def start(self, prompt: Tensor) -> PromptState:
        """The state after the prompt (B, P), which is read in one pass."""
        layers = [LayerCache() for _ in self.layers]
        if self.padding_index is None:
            hidden = torch.zeros_like(prompt, dtype=torch.bool)
        else:
            hidden = prompt.eq(self.padding_index)
        last = (~hidden).sum(1, keepdim=True) + (first_position(self.padding_index) - 1)
        mask = additive_mask(hidden[:, None, None], self.embed_tokens.weight)
        state = PromptState(layers, mask, last)
        if prompt.size(1):
            state.logits = self.output_projection(self.features(prompt, layers)[:, -1:])
        return state

    @torch.no_grad()
    def step(self, tokens: Tensor, state: PromptState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K) in each beam. `tokens` are appended to the state.

        After a prompt, the first step returns the logits after the prompt, and ignores `tokens` (B, 1): the prompt
        takes the place of the token that a search starts with.
        """
        if state.logits is not None:
            logits, state.logits = state.logits, None
            return logits
        state.advance()
        x = self.embed(tokens, state.position, length=state.length)
        return self.output_projection(self.run_layers(x, (state.mask, self._rotation(state.position)), state.layers))

    def _rotation(self, positions: Tensor) -> Rotation | None:
        config = self.config
        if config.rotary_theta is None:
            return None
        features = config.decoder_embed_dim // config.decoder_attention_heads
        positions = positions - first_position(self.padding_index)
        return rotation_at(positions, features, config.rotary_theta, config.rotary_scaling)


class LanguageModel(DecodingModel):
    """A decoder-only Transformer with a chosen connection in every block, in GPT-2's shape or Llama's.

    :param vocabulary_size: number of tokens, including special tokens.
    :param padding: the token that fills shorter rows of a batch, on either side; in prompts, on the left. None: rows
        have no padding.
    :raises SettingError: the vocabulary has no token `padding`.
    """

    config: LanguageModelConfig
    decoder: LanguageDecoder

    def __init__(self, config: LanguageModelConfig, vocabulary_size: int, padding: int | None = None) -> None:
        super().__init__()
        if padding is not None and not 0 <= padding < vocabulary_size:
            raise SettingError.of_value("padding", padding, f"a token of the vocabulary, 0 to {vocabulary_size - 1}")
        self.config = config
        embedding = build_token_embedding(vocabulary_size, config.decoder_embed_dim, padding)
        self.decoder = LanguageDecoder(config, embedding)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens."""
        return self.decoder.embed_tokens.num_embeddings

    @property
    def padding(self) -> int | None:
        """The token that fills shorter rows, or None."""
        return self.decoder.padding_index

    @property
    def connection(self) -> str:
        """The spec of its connections."""
        return self.config.decoder_connection

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of the token after each position of `tokens` (B, T)."""
        return self.decoder(tokens)

    def start(self, prompt: Tensor, *, attention: bool = False) -> PromptState:
        """The state after the prompt (B, P), which is read in one pass, with one beam per row. See `step`.

        A search starts from it if the prompt is its `memory`.

        :raises SettingError: `attention` is true: there is no memory whose attention could be kept.
        """
        if attention:
            raise SettingError.of_value("attention", attention, "false: a language model has no source to attend to")
        return self.decoder.start(prompt)

    def step(self, tokens: Tensor, state: PromptState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K) in each beam. See `LanguageDecoder.step`."""
        return self.decoder.step(tokens, state)

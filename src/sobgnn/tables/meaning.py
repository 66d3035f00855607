"""Encoders of texts and pictures by meaning."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn._system.packages import installed
from sobgnn.tables.kept import Vectors, kept_vectors
from sobgnn.tables.model_folder import ModelFolder

# Architectures whose code in transformers opens no file, whatever the configuration says.
_TEXT_KINDS = (
    "albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta",
    "xlm-roberta",
)  # fmt: skip
_IMAGE_KINDS = (
    "beit", "clip_vision_model", "convnext", "convnextv2", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit",
    "resnet", "siglip_vision_model", "swin", "swinv2", "vit",
)  # fmt: skip
# Models of texts and pictures, of which the part for pictures is used.
_IMAGE_PARTS = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}
# What a configuration may say that is about how to load, and not about the network.
_LOADING = ("attn_implementation", "auto_map", "dtype", "quantization_config", "torch_dtype", "use_kernels")
# Where a configuration says how many layers there are: they are made one by one, before weights are compared.
_NUMBERS_OF_LAYERS = ("num_hidden_layers", "n_layers", "num_hidden_groups", "inner_group_num", "depths")
_MOST_LAYERS = 100
_MOST_TOKENS, _STATIC_TOKENS = 512, 2048
# Numbers of tokens and of texts in one batch.
_BATCH_TOKENS, _BATCH = 8192, 256
_CHARACTERS_A_TOKEN = 20


class TextModel(ModelFolder):
    """Texts to vectors: a sentence-transformers folder, or a static one as model2vec writes it.

    Read are the transformer, its pooling (mean, first token or maximum), dense layers, and the prompt and length that
    the folder names. Nothing is loaded before the first call of :meth:`encode`.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        super().__init__(folder, name)
        kinds = [self._module(module) for module in self._json("modules.json", list, optional=True)]
        first = kinds[0] if kinds else ("Transformer", "")
        self._config = self._json("config.json", optional=first[0] == "StaticEmbedding")
        self.static = first[0] == "StaticEmbedding" or self._config.get("model_type") == "model2vec"
        self.of_sentences = bool(kinds)
        place = first[1] if self._path(f"{first[1]}tokenizer.json").exists() else ""
        self._tokenizing = self._note(f"{place}tokenizer.json")
        self._names = self._note_weights(first[1] if first[0] == "StaticEmbedding" and place else "")
        self._settings = self._json("sentence_bert_config.json", optional=True)
        own = self._json("config_sentence_transformers.json", optional=True)
        with _one_line(self.folder):
            self._prompt = str(dict(own.get("prompts") or {}).get(own.get("default_prompt_name"), ""))
        pooling = [self._json(f"{at}config.json") for kind, at in kinds if kind == "Pooling"]
        self._pooling = _pooling_of(pooling[0]) if pooling else "mean"
        self._dense = [
            (str(self._json(f"{at}config.json").get("activation_function", "")), self._note_weights(at))
            for kind, at in kinds
            if kind == "Dense"
        ]
        if not self.static:
            self._check_kind(self._config, _TEXT_KINDS)
        self.progress: Callable[[str], None] | None = None

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors float32 [texts, width]. Those of a network are kept: the same text is never encoded twice."""
        with _one_line(self.folder):
            if self.static:
                return self._static_vectors(texts)
            return kept_vectors(self.record.digest, texts, self._network_vectors, self.progress)

    def word_vectors(self) -> Vectors:
        """Vectors of all words of the vocabulary, each alone between the tokens that begin and end a text."""
        with _one_line(self.folder):
            if self.static:
                raise ValueError("it is static already")
            around = self._tokenizer.encode("").ids
            before, after = around[: len(around) // 2], around[len(around) // 2 :]
            return self._embedded([[*before, i, *after] for i in range(self._tokenizer.get_vocab_size())])

    def _module(self, module: Any) -> tuple[str, str]:
        """Kind and place (with a slash) of an entry of modules.json."""
        kind = str(module["type"]).rsplit(".", 1)[-1] if isinstance(module, dict) and "type" in module else "?"
        if kind not in ("Transformer", "Pooling", "Normalize", "Dense", "StaticEmbedding"):
            raise ValueError(f"{self.folder} has a module {kind!r:.40}, and such are not read. Pass another model.")
        place = str(module.get("path", ""))
        return kind, "" if place in ("", ".") else f"{place}/"

    def _tokens(self, texts: Sequence[str], most: int, special: bool) -> list[list[int]]:
        self._tokenizer.enable_truncation(most)
        cut = [self._prompt + text[: most * _CHARACTERS_A_TOKEN] for text in texts]
        if self._settings.get("do_lower_case"):
            cut = [text.lower() for text in cut]
        return [part.ids for part in self._tokenizer.encode_batch(cut, add_special_tokens=special)]

    @cached_property
    def _tokenizer(self) -> Any:
        if not installed("tokenizers"):
            raise ValueError('A text model needs the package tokenizers: pip install "sobgnn[text]".')
        from tokenizers import Tokenizer

        made = Tokenizer.from_buffer(self._tokenizing.read_bytes())
        made.no_padding()
        return made

    @cached_property
    def _embeddings(self) -> tuple[Vectors, Vectors, npt.NDArray[np.int64]]:
        """Of a static model: vectors, and for each token its weight and its vector's row."""
        held = self._weights(self._names)
        table = np.asarray(held["embeddings" if "embeddings" in held else "embedding.weight"].float(), dtype=np.float32)
        rows = np.asarray(held["mapping"], dtype=np.int64) if "mapping" in held else np.arange(len(table))
        ones = np.ones(len(rows), np.float32)
        weight = np.asarray(held["weights"].float(), np.float32) if "weights" in held else ones
        if (table.ndim, rows.shape) != (2, weight.shape) or rows.min() < 0 or rows.max() >= len(table):
            raise ValueError("its arrays contradict each other")
        return table, weight, rows

    def _static_vectors(self, texts: Sequence[str]) -> Vectors:
        table, weight, rows = self._embeddings
        unknown = self._tokenizer.token_to_id("[UNK]")
        tokens = self._tokens(texts, _STATIC_TOKENS, special=False)
        kept = [[token for token in part if token != unknown] for part in tokens]
        sizes = np.array([len(part) for part in kept])
        ids = np.array([token for part in kept for token in part], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        counts = sp.csr_array((weight[ids], rows[ids], starts), shape=(len(texts), len(table)))
        return np.asarray(counts @ table / np.maximum(sizes, 1)[:, None], dtype=np.float32)

    @cached_property
    def _network(self) -> tuple[Any, list[tuple[Any, Any, bool]], str]:
        """The transformer, its dense layers, and the device they are on."""
        device = _device()
        network = _pretrained(self._config, self._weights(self._names), self.folder)
        dense = []
        for activation, names in self._dense:
            held = self._weights(names)
            bias = held.get("linear.bias")
            dense.append((held["linear.weight"].float().to(device), bias, activation.endswith("Tanh")))
        return (network.half() if device == "cuda" else network).to(device), dense, device

    def _network_vectors(self, texts: Sequence[str]) -> Vectors:
        limit = min(int(self._config.get("max_position_embeddings", _MOST_TOKENS)), _MOST_TOKENS)
        most = min(int(self._settings.get("max_seq_length") or limit), limit)
        return self._embedded(self._tokens(texts, most, special=True))

    def _embedded(self, tokens: Sequence[list[int]]) -> Vectors:
        import torch

        network, dense, device = self._network
        pad = int(self._config.get("pad_token_id") or 0)
        parts, order = [np.zeros((0, 0), np.float32)], []
        for batch in _by_length([len(part) for part in tokens]):
            held = [tokens[i] for i in batch]
            longest = max(1, *map(len, held))
            ids = torch.tensor([[*part, *[pad] * (longest - len(part))] for part in held])
            mask = torch.tensor([[1] * len(part) + [0] * (longest - len(part)) for part in held])
            with torch.inference_mode():
                hidden = network(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
                vectors = _pooled(hidden.float(), mask.to(device), self._pooling)
                for weight, bias, tanh in dense:
                    vectors = torch.nn.functional.linear(vectors, weight, None if bias is None else bias.to(weight))
                    vectors = vectors.tanh() if tanh else vectors
            parts.append(vectors.cpu().numpy())
            order += batch
        return np.concatenate(parts[1:])[np.argsort(order)] if order else parts[0]


class ImageModel(ModelFolder):
    """Pictures to vectors: a folder of a vision network as transformers writes it."""

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        super().__init__(folder, name)
        config = self._json("config.json")
        if config.get("model_type") in _IMAGE_PARTS:
            config = {**dict(config.get("vision_config") or {}), "model_type": _IMAGE_PARTS[config["model_type"]]}
        self._config = config
        self._check_kind(config, _IMAGE_KINDS)
        self._names = self._note_weights()
        seen = self._json("preprocessor_config.json", optional=True)
        with _one_line(self.folder):
            side = config.get("image_size", 224)
            self.side = int(side[0] if isinstance(side, list) else side)
            self._mean = np.array(seen.get("image_mean", (0.485, 0.456, 0.406)), np.float32)
            self._deviation = np.array(seen.get("image_std", (0.229, 0.224, 0.225)), np.float32)
            if not 1 <= self.side <= 2048 or not self._mean.shape == self._deviation.shape == (3,):
                raise ValueError("the size or the normalization of its pictures")

    def encode(self, pixels: Vectors) -> Vectors:
        """Vectors float32 [B, width] of RGB in [0, 1], [B, side, side, 3]."""
        import torch

        with _one_line(self.folder), torch.inference_mode():
            network, pooled, device = self._network
            normal = (pixels - self._mean) / self._deviation
            seen = torch.from_numpy(np.ascontiguousarray(normal.transpose(0, 3, 1, 2)))
            out = network(pixel_values=seen.to(device))
            found = out.pooler_output if pooled else out.last_hidden_state[:, 0]
            return np.asarray(torch.nan_to_num(found).reshape(len(pixels), -1).float().cpu().numpy())

    @cached_property
    def _network(self) -> tuple[Any, bool, str]:
        """The network, whether its own pooling is used, and the device it is on."""
        weights = self._weights(self._names)
        network = _pretrained(self._config, weights, self.folder)
        # The pooling of these two is a layer that was trained for something else, or not at all.
        return network.to(_device()), self._config["model_type"] not in ("vit", "deit"), _device()


def _pretrained(config: dict[str, Any], weights: dict[str, Any], folder: Path) -> Any:
    """The network of a configuration with these weights, in float32, evaluating."""
    if not installed("transformers"):
        raise ValueError('This model needs the package transformers: pip install "sobgnn[text]".')
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    for name in _NUMBERS_OF_LAYERS:
        depths = config.get(name) or 0
        if (sum(depths) if isinstance(depths, list) else depths) > max(_MOST_LAYERS, len(weights)):
            raise ValueError(f"{folder} holds a model whose configuration has more layers than its weights: {name}.")
    with _silent():
        made = CONFIG_MAPPING[config["model_type"]].from_dict(_of_network(config))
        network, said = MODEL_MAPPING[type(made)].from_pretrained(
            None, config=made, state_dict={k: v.float() for k, v in weights.items()}, output_loading_info=True
        )
    missing = [name for name in said["missing_keys"] if "pool" not in name]
    if missing or said["mismatched_keys"]:
        raise ValueError(f"{folder} is only half a model: its weights lack {len(missing) or 'some'} arrays that fit.")
    return network.eval()


def _of_network(config: Any) -> Any:
    """A configuration without what is about how to load it."""
    if isinstance(config, dict):
        kept = {k: v for k, v in config.items() if not k.startswith("_") and k not in _LOADING}
        return {name: _of_network(value) for name, value in kept.items()}
    return config


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without transformers' own progress bar and warnings, which a run's own lines would be mixed with."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def _one_line(folder: Path) -> Iterator[None]:
    """Turn what libraries raise about a damaged model, which is nearly anything, into a ValueError of one line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith((str(folder), "A text model", "This model")):
            raise
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ValueError(f"{folder} holds a model that cannot be used: {reason}") from None


def _pooling_of(config: dict[str, Any]) -> str:
    """``mean``, ``cls`` or ``max``."""
    modes = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    said = config.get("pooling_mode")
    chosen = (
        [said] if said is not None else [mode for mode, name in modes.items() if config.get(f"pooling_mode_{name}")]
    )
    if len(chosen) != 1 or chosen[0] not in modes:
        raise ValueError(f"Pooling must be one of {', '.join(modes)}, but the text model has {chosen!r:.60}.")
    return str(chosen[0])


def _pooled(hidden: Any, mask: Any, how: str) -> Any:
    """Vectors [B, width] of states [B, tokens, width]."""
    if how == "cls":
        return hidden[:, 0]
    there = mask[:, :, None].to(hidden.dtype)
    if how == "max":
        return hidden.masked_fill(there == 0, float("-inf")).amax(dim=1)
    return (hidden * there).sum(dim=1) / there.sum(dim=1).clamp(min=1e-9)


def _by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of texts of about the same length, the longest first: memory is known from the start."""
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    start = 0
    while start < len(order):
        size = max(1, min(_BATCH, _BATCH_TOKENS // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"

"""Small encoders of texts and pictures, with random weights, in the folders that real ones come in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "old", "new", "cat", "dog", "sat", "ran", "house", "red", "blue"]


def tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save(str(folder / "tokenizer.json"))


def text_model(folder: Path, pooling: str = "mean", seed: int = 0, dense: bool = False) -> Path:
    """A sentence-transformers folder: a transformer of 16 numbers per token, its pooling and a normalization."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = BertModel(
            BertConfig(
                vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                max_position_embeddings=40, pad_token_id=0,
            ),
            add_pooling_layer=False,
        )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(network.config.to_json_string())
        save_file(network.state_dict(), folder / "model.safetensors")
        kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
        if dense:
            kinds["2_Normalize"] = "Dense"
            (folder / "2_Normalize").mkdir()
            about = {"activation_function": "torch.nn.modules.activation.Tanh"}
            (folder / "2_Normalize" / "config.json").write_text(json.dumps(about))
            weight = {"linear.weight": torch.randn(5, 16), "linear.bias": torch.randn(5)}
            save_file(weight, folder / "2_Normalize" / "model.safetensors")
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{mode}_token{'s' * (mode != 'cls')}": mode == pooling for mode in ("cls", "mean", "max")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    tokenizer(folder)
    return folder


def static_model(folder: Path, seed: int = 0) -> Path:
    """A static model as model2vec writes it: 8 numbers a word."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    vectors = np.random.default_rng(seed).normal(size=(len(WORDS), 8)).astype(np.float32)
    save_file({"embeddings": vectors}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    tokenizer(folder)
    return folder


def image_model(folder: Path, kind: str = "dinov2", seed: int = 0) -> Path:
    """A vision transformer of pictures of 16 × 16 pixels, 12 numbers each."""
    import torch
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}
    config = CONFIG_MAPPING[kind](intermediate_size=24, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = MODEL_MAPPING[type(config)](config)
    network.save_pretrained(folder)
    return folder

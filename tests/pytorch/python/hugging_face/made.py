"""Small models, a tokenizer and texts that are generated here: nothing is downloaded."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast,
)

WORDS = ("the a small large red green blue cat dog bird fish house tree river sees finds likes makes old new and or not "
         "very quick slow bright dark one two three four").split()
TEMPLATE = ("{% for message in messages %}{{ message['role'] + ' : ' + message['content'] + ' <end> ' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}")


def tokenizer():
    known = ["<pad>", "<end>", "<unk>", ":", "user", "assistant", *WORDS]
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(known)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<end>", unk_token="<unk>",
                                   chat_template=TEMPLATE, padding_side="right")


def text(seed, words):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(WORDS[index] for index in torch.randint(len(WORDS), (words,), generator=generator))


def causal(kind, seed=7):
    torch.manual_seed(seed)
    size = len(tokenizer())
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=size, n_positions=64, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            bos_token_id=1, eos_token_id=1, pad_token_id=0))
    return LlamaForCausalLM(_llama(size))


def classifier(seed=7):
    torch.manual_seed(seed)
    return LlamaForSequenceClassification(_llama(len(tokenizer()), num_labels=1))


def _llama(size, **more):
    return LlamaConfig(vocab_size=size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=1, pad_token_id=0,
                       **more)


class Sequences(torch.utils.data.Dataset):
    """Returns token sequences. With `masked`, some have labels only for a part: ranks have different numbers of
    labels."""

    def __init__(self, count, seed=0, masked=True):
        self._masked = masked
        generator = torch.Generator().manual_seed(seed)
        size = len(tokenizer())
        self._rows = [torch.randint(3, size, (12,), generator=generator) for _ in range(count)]

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        labels = self._rows[index].clone()
        labels[:index % 5 if self._masked else 0] = -100
        return {"input_ids": self._rows[index], "labels": labels}


def lora(task="CAUSAL_LM", **more):
    from peft import LoraConfig
    return LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type=task, **more)

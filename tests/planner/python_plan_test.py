"""Tests zerocore.plan(). Usage: python_plan_test.py FOLDER_OF_THE_PACKAGE"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

FOLDER = sys.argv[1]
sys.path.insert(0, FOLDER)

import torch  # noqa: E402
import zerocore  # noqa: E402

try:
    import transformers
except ImportError:
    transformers = None

# Families of the table in tools/planner/decoder_families.cpp that transformers has, by the names of their sizes.
GPT_SIZES = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
             "max_position_embeddings": "n_positions", "intermediate_size": "n_inner"}
RENAMED = {"gpt2": GPT_SIZES, "gpt_bigcode": GPT_SIZES, "gptj": GPT_SIZES, "codegen": GPT_SIZES,
           "bloom": {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
           "mpt": {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
                   "max_position_embeddings": "max_seq_len"},
           "opt": {"intermediate_size": "ffn_dim"}, "falcon": {"num_key_value_heads": "num_kv_heads", "intermediate_size": "ffn_hidden_size"}}
EXPERTS = {"qwen2_moe": "num_experts", "qwen3_moe": "num_experts", "olmoe": "num_experts", "mixtral": "num_local_experts",
           "granitemoe": "num_local_experts", "phimoe": "num_local_experts", "gpt_oss": "num_local_experts",
           "deepseek_v2": "n_routed_experts", "deepseek_v3": "n_routed_experts"}
FAMILIES = """llama granite smollm3 seed_oss arcee ernie4_5 mistral qwen2 qwen3 gemma gemma2 gemma3_text olmo olmo2 olmo3 exaone4
cohere cohere2 stablelm starcoder2 nemotron phi phi3 glm glm4 gpt_neox""".split() + [*RENAMED, *EXPERTS]
FLAGS = ("attention_bias mlp_bias use_bias use_qkv_bias qk_layernorm use_qk_norm qkv_bias attention_out_bias bias enable_bias "
         "use_parallel_residual lm_head_bias multi_query new_decoder_architecture tie_word_embeddings do_layer_norm_before").split()


def drawn_config(family, dice):
    """Returns a small config of the family, with some of its flags turned."""
    heads = dice.choice([2, 4])
    sizes = {"hidden_size": 12 * heads, "num_hidden_layers": 3, "num_attention_heads": heads, "num_key_value_heads": dice.choice([1, heads]),
             "intermediate_size": dice.randint(20, 90), "vocab_size": dice.randint(50, 200), "max_position_embeddings": 64}
    if family in EXPERTS:
        sizes |= {EXPERTS[family]: 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 24,
                  "mlp_only_layers": [1], "first_k_dense_replace": 1, "n_shared_experts": 2, "n_group": 2, "topk_group": 1}
    if family.startswith("deepseek"):
        sizes |= {"q_lora_rank": dice.choice([None, 16]), "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14}
    if family == "codegen":
        sizes |= {"hidden_size": 48, "num_attention_heads": 4}
    if family in ("gptj", "codegen"):
        sizes["rotary_dim"] = 4
    if family == "opt":
        sizes["word_embed_proj_dim"] = dice.choice([12 * heads, 20])
    named = {RENAMED.get(family, {}).get(key, key): value for key, value in sizes.items()}
    known = transformers.AutoConfig.for_model(family).to_dict()
    turned = {flag: dice.random() < 0.5 for flag in FLAGS if flag in known and dice.random() < 0.5}
    if family == "mpt":
        del named["intermediate_size"]
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.AutoConfig.for_model(family, **named, **turned, **special)


SIZES = {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 100, "n_positions": 32}
CONFIG = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}


class Plan(unittest.TestCase):
    def test_module_on_meta(self):
        with torch.device("meta"):
            model = torch.nn.Sequential(
                torch.nn.Embedding(1000, 256),
                torch.nn.ModuleList([torch.nn.TransformerEncoderLayer(256, 4) for _ in range(4)]),
                torch.nn.Linear(256, 1000))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows = {row["row"]: row for row in zerocore.plan(model, CONFIG, ranks=16)}
        self.assertEqual(rows["config"]["memory"], rows["2"]["memory"])
        self.assertAlmostEqual(rows["0"]["model_state_bytes"] / (16 * parameters), 1, delta=0.02)
        self.assertAlmostEqual(rows["3"]["model_state_bytes"] / parameters, 1, delta=0.05)

    def test_model_by_name_file_dict_and_object(self):
        class Described:
            def to_dict(self):
                return SIZES

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(SIZES, file)
            plans = [zerocore.plan(model, ranks=2, per_node=2, device="cpu", rows="3") for model in (path, SIZES, Described())]
        self.assertEqual(plans[0], plans[1])
        self.assertEqual(plans[0], plans[2])
        self.assertEqual([row["row"] for row in zerocore.plan("gpt2", rows="0,3")], ["0", "3"])

    @unittest.skipUnless(transformers, "transformers is not installed")
    def test_every_family_has_the_parameters_that_transformers_gives_it(self):
        transformers.logging.set_verbosity_error()
        for family in FAMILIES:
            for seed in range(2):
                config = drawn_config(family, random.Random(f"{family} {seed}"))
                with torch.device("meta"):
                    model = transformers.AutoModelForCausalLM.from_config(config)
                with self.subTest(family=family, seed=seed, config=config.to_diff_dict()), tempfile.TemporaryDirectory() as folder:
                    config.save_pretrained(folder)
                    row, = zerocore.plan(folder, ranks=2, per_node=2, device="cpu", rows="0")
                    self.assertEqual(row["parameters"], sum(parameter.numel() for parameter in model.parameters()))

    @unittest.skipUnless(transformers, "transformers is not installed")
    def test_any_architecture_of_transformers(self):
        config = transformers.AutoConfig.for_model("mamba", hidden_size=32, num_hidden_layers=2, vocab_size=50)
        with torch.device("meta"):
            wanted = sum(parameter.numel() for parameter in transformers.AutoModelForCausalLM.from_config(config).parameters())
        with tempfile.TemporaryDirectory() as folder:
            config.save_pretrained(folder)
            for model in (folder, os.path.join(folder, "config.json"), config, config.to_dict()):
                row, = zerocore.plan(model, ranks=2, per_node=2, device="cpu", rows="0")
                self.assertEqual(row["parameters"], wanted)
            command = subprocess.run([sys.executable, "-m", "zerocore", "plan", folder, "--ranks", "2", "--per-node", "2", "--rows", "0,3"],
                                     capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": FOLDER})
            self.assertEqual(command.returncode, 0, command.stderr)
            self.assertIn(f"with {wanted:,} parameters on 2 ranks", " ".join(command.stdout.split()))
        with self.assertRaisesRegex(zerocore.ConfigError, "^the config: model_type is .none such.*no model of it either"):
            zerocore.plan({"model_type": "none such"})

    def test_errors_are_the_commands(self):
        for arguments, message in ((("gpt5",), "--model gpt5"), (("gpt2", {"zero_optimization": {"stage": 7}}), "stage")):
            with self.subTest(arguments=arguments), self.assertRaisesRegex(zerocore.ConfigError, message):
                zerocore.plan(*arguments)
        # Another model would not help, so nothing says that transformers has none.
        for options, message in (({"rows": "7"}, "--rows 7"), ({"sequence_length": 2048}, "beyond the model's context of 1024")):
            with self.subTest(options=options), self.assertRaisesRegex(zerocore.ConfigError, message) as refused:
                zerocore.plan("gpt2", **options)
            self.assertNotIn("transformers", str(refused.exception))

    def test_a_sample_beyond_a_table_of_positions(self):
        model = torch.nn.ModuleDict({"position_embeddings": torch.nn.Embedding(64, 32), "head": torch.nn.Linear(32, 32)})
        self.assertEqual(zerocore.plan(model, rows="0"), zerocore.plan(model, rows="0", sequence_length=64))
        with self.assertRaisesRegex(zerocore.ConfigError, "--sequence-length 65 is beyond the model's context of 64"):
            zerocore.plan(model, rows="0", sequence_length=65)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#include "tools/planner/model_shape.h"

#include <doctest/doctest.h>

#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"
#include "zero/plan/model.h"

using namespace zero::planner;

TEST_CASE("the trainer's models have the work that its own count of operations says") {
  const ModelShape shape = load_shape("gpt2");
  CHECK(shape.parameters == 124'439'808);
  double products = 0;
  for (const UnitWork& unit : shape.work)
    for (const Product& product : unit.products)
      products += 6.0 * static_cast<double>(product.in) * static_cast<double>(product.out);
  const double attention = 6.0 * 12 * 768 * 1024;
  CHECK(products + attention == doctest::Approx(shape.flops_per_token(1024)).epsilon(0.01));
  CHECK(shape.work.size() == shape.spec.declared().units.size());
}

TEST_CASE("a number of parameters gives a decoder of that size") {
  for (const DecoderSize& size : {DecoderSize{7'000'000'000, 32, 4096}, DecoderSize{124'000'000},
                                  DecoderSize{70'000'000'000, 80, 8192}}) {
    const ModelShape shape = decoder_shape(size);
    CHECK(static_cast<double>(shape.parameters) ==
          doctest::Approx(static_cast<double>(size.parameters)).epsilon(0.001));
  }
  CHECK_THROWS_WITH_AS(decoder_shape({1'000'000, 32, 4096}), doctest::Contains("--layers 32"),
                       zero::ConfigError);
}

TEST_CASE("names and shapes of any program give units by their numbers") {
  const ModelShape shape = shape_of_tensors("ours", {{"head.weight", {1000, 64}},
                                                     {"layers.10.attn.q_proj.weight", {64, 64}},
                                                     {"layers.2.attn.q_proj.weight", {64, 64}},
                                                     {"layers.2.mlp.weight", {256, 64}},
                                                     {"embed_tokens.weight", {1000, 64}}});
  const auto& units = shape.spec.declared().units;
  REQUIRE(units.size() == 4);
  CHECK(units[0].name == "first");
  CHECK(units[1].name == "layers.2");
  CHECK(units[2].name == "layers.10");
  CHECK(units[3].name == "last");
  CHECK(shape.hidden == 64);
  CHECK(shape.work[1].products.size() == 2);
  CHECK(shape.parameters == 2 * 64'000 + 2 * 64 * 64 + 256 * 64);
}

TEST_CASE("a sample beyond the context is refused if positions are a table, and noted otherwise") {
  const auto shape_with = [](const char* table) {
    return shape_of_tensors("ours", {{table, {512, 64}}, {"layers.2.mlp.weight", {256, 64}}}, {},
                            {.context = 510});
  };
  ModelShape learned = shape_with("embeddings.position_embeddings.weight");
  CHECK(learned.context == 510);
  check_sequence(learned, 510);
  CHECK_THROWS_WITH_AS(check_sequence(learned, 511),
                       doctest::Contains("--sequence-length 511 is beyond the model's context of "
                                         "510, the rows of its table of positions"),
                       zero::ConfigError);
  ModelShape computed = shape_with("relative_position_bias.weight");
  check_sequence(computed, 511);
  REQUIRE(computed.notices.size() == 1);
  CHECK(computed.notices[0].find("511 is beyond the model's context of 510") != std::string::npos);
  CHECK(shape_of_tensors("ours", {{"wpe.weight", {512, 64}}}).context == 512);
  ModelShape preset = load_shape("llama-tiny");
  CHECK_THROWS_WITH_AS(check_sequence(preset, 300), doctest::Contains("give at most 256"),
                       zero::ConfigError);
  ModelShape any = decoder_shape({7'000'000'000});
  check_sequence(any, 1 << 20);
  CHECK(any.notices.empty());
}

TEST_CASE("counts are read with their suffixes, and refused by the name of the option") {
  CHECK(parse_count("--params", "7B") == 7'000'000'000);
  CHECK(parse_count("--params", "7e9") == 7'000'000'000);
  CHECK(parse_count("--params", "124M") == 124'000'000);
  for (const char* text : {"", "7X", "-1", "0", "nan", "1e30"})
    CHECK_THROWS_WITH_AS(parse_count("--params", text), doctest::Contains("--params"),
                         zero::ConfigError);
}

TEST_CASE("a config.json of other decoders gives transformers' number of parameters") {
  const struct {
    const char* name;
    std::int64_t parameters;
    const char* config;
  } cases[] = {
      {"Qwen3-8B", 8190735360,
       R"({"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, )"
       R"("num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, )"
       R"("intermediate_size": 12288, "vocab_size": 151936, )"
       R"("max_position_embeddings": 40960})"},
      {"Qwen3-30B-A3B", 30532122624,
       R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, )"
       R"("num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, )"
       R"("intermediate_size": 6144, "moe_intermediate_size": 768, )"
       R"("num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936})"},
      {"Mistral-7B", 7241732096,
       R"({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, )"
       R"("num_attention_heads": 32, "num_key_value_heads": 8, )"
       R"("intermediate_size": 14336, "vocab_size": 32000})"},
      {"Mixtral-8x7B", 46702792704,
       R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, )"
       R"("num_attention_heads": 32, "num_key_value_heads": 8, )"
       R"("intermediate_size": 14336, "num_local_experts": 8, )"
       R"("num_experts_per_tok": 2, "vocab_size": 32000})"},
      {"gemma-2-2b", 2614341888,
       R"({"model_type": "gemma2", "hidden_size": 2304, "num_hidden_layers": 26, )"
       R"("num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, )"
       R"("intermediate_size": 9216, "vocab_size": 256000})"},
      {"gemma-3-1b", 999885952,
       R"({"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26, )"
       R"("num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, )"
       R"("intermediate_size": 6912, "vocab_size": 262144})"},
      {"phi-2", 2779683840,
       R"({"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32, )"
       R"("num_attention_heads": 32, "intermediate_size": 10240, )"
       R"("vocab_size": 51200})"},
      {"Phi-3-mini", 3821079552,
       R"({"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, )"
       R"("num_attention_heads": 32, "num_key_value_heads": 32, )"
       R"("intermediate_size": 8192, "vocab_size": 32064})"},
      {"pythia-1.4b", 1414647808,
       R"({"model_type": "gpt_neox", "hidden_size": 2048, "num_hidden_layers": 24, )"
       R"("num_attention_heads": 16, "intermediate_size": 8192, "vocab_size": 50304})"},
      {"gpt-j-6b", 6050882784,
       R"({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, )"
       R"("vocab_size": 50400, "n_positions": 2048, "rotary_dim": 64})"},
      {"opt-350m", 331196416,
       R"({"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, )"
       R"("num_attention_heads": 16, "ffn_dim": 4096, "word_embed_proj_dim": 512, )"
       R"("do_layer_norm_before": false, "vocab_size": 50272, )"
       R"("max_position_embeddings": 2048})"},
      {"bloom-560m", 559214592,
       R"({"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, )"
       R"("vocab_size": 250880})"},
      {"falcon-7b", 6921720704,
       R"({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, )"
       R"("num_attention_heads": 71, "vocab_size": 65024})"},
      {"falcon-40b", 41303293952,
       R"({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, )"
       R"("num_attention_heads": 128, "num_kv_heads": 8, )"
       R"("new_decoder_architecture": true, "vocab_size": 65024})"},
      {"starcoder2-3b", 3030371328,
       R"({"model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30, )"
       R"("num_attention_heads": 24, "num_key_value_heads": 2, )"
       R"("intermediate_size": 12288, "vocab_size": 49152})"},
      {"c4ai-command-r", 34980831232,
       R"({"model_type": "cohere", "hidden_size": 8192, "num_hidden_layers": 40, )"
       R"("num_attention_heads": 64, "num_key_value_heads": 64, )"
       R"("intermediate_size": 22528, "vocab_size": 256000})"},
      {"DeepSeek-V2-Lite", 15706484224,
       R"({"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, )"
       R"("num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": null, )"
       R"("kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, )"
       R"("v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, )"
       R"("num_experts_per_tok": 6, "moe_intermediate_size": 1408, )"
       R"("first_k_dense_replace": 1, "intermediate_size": 10944, )"
       R"("vocab_size": 102400})"},
      {"DeepSeek-V3", 671026404352,
       R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, )"
       R"("num_attention_heads": 128, "num_key_value_heads": 128, )"
       R"("intermediate_size": 18432, "vocab_size": 129280, )"
       R"("num_experts_per_tok": 8})"},
      {"SmolLM3-3B", 3075098624,
       R"({"model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 36, )"
       R"("num_attention_heads": 16, "num_key_value_heads": 4, )"
       R"("intermediate_size": 11008, "vocab_size": 128256})"},
      {"gpt-oss-20b", 20914757184,
       R"({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, )"
       R"("num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, )"
       R"("intermediate_size": 2880, "num_local_experts": 32, )"
       R"("num_experts_per_tok": 4, "vocab_size": 201088})"},
      {"internlm2-7b", 7737708544,
       R"({"model_type": "internlm2", "hidden_size": 4096, "num_hidden_layers": 32, )"
       R"("num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, )"
       R"("vocab_size": 92544, "bias": false})"}};
  const zero::tests::TemporaryDirectory folder;
  for (const auto& c : cases) {
    INFO(c.name);
    const ModelShape shape = load_shape(folder.file("config.json", c.config));
    CHECK(shape.parameters == c.parameters);
    CHECK(load_shape(folder.path().string()).parameters == c.parameters);
    CHECK(shape.work.size() == shape.spec.declared().units.size());
  }
}

TEST_CASE("a token takes some of the experts, and the work is that of these") {
  const zero::tests::TemporaryDirectory folder;
  const auto flops = [&](int experts, int taken) {
    return load_shape(folder.file("config.json",
                                  R"({"model_type": "mixtral", "hidden_size": 64, "vocab_size": 100,
                                      "num_hidden_layers": 2, "num_attention_heads": 4,
                                      "num_key_value_heads": 4, "intermediate_size": 128,
                                      "num_local_experts": )" +
                                      std::to_string(experts) + R"(, "num_experts_per_tok": )" +
                                      std::to_string(taken) + "}"))
        .flops_per_token(16);
  };
  const double expert = 6.0 * 2 * 3 * 64 * 128, router = 6.0 * 2 * 64;
  CHECK(flops(4, 2) - flops(4, 1) == doctest::Approx(expert));
  CHECK(flops(8, 2) - flops(4, 2) == doctest::Approx(4 * router));
}

TEST_CASE("a decoder of a size has matrices that fit one another") {
  CHECK(decoder_shape({7'000'000'000, 32}).hidden > 1000);
  CHECK_THROWS_WITH_AS(decoder_shape({7'000'000'000, 32, 8}), doctest::Contains("an MLP of"),
                       zero::ConfigError);
  CHECK_THROWS_WITH_AS(decoder_shape({7'000'000'000, 32, 100'000}),
                       doctest::Contains("attention alone"), zero::ConfigError);
}

TEST_CASE("configs that make no model name the key, and others the way") {
  const zero::tests::TemporaryDirectory folder;
  const auto refused = [&](const std::string& text) {
    const std::string file = folder.file("config.json", text);
    return zero::tests::refusal<zero::ConfigError>([&] { load_shape(file); });
  };
  const std::string sizes = R"("hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100)";
  const auto names = [&](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(zero::tests::contains(refused(text), part));
  };
  names(R"({"model_type": "qwen3", "intermediate_size": 8, )" + sizes + "}",
        "num_hidden_layers is missing");
  names(R"({"model_type": "mistral", "num_hidden_layers": 2, "intermediate_size": "8", )" + sizes +
            "}",
        "intermediate_size is \"8\"");
  names(R"({"model_type": "mistral", "num_hidden_layers": -2, "intermediate_size": 8, )" + sizes +
            "}",
        "num_hidden_layers is -2");
  names(R"({"model_type": "mistral", "num_hidden_layers": 1000000, "intermediate_size": 8, )" +
            sizes + "}",
        "num_hidden_layers is 1000000");
  names(R"({"model_type": "mistral", "num_hidden_layers": 2, "intermediate_size": 8,
            "hidden_size": 65, "num_attention_heads": 4, "vocab_size": 100})",
        "hidden_size 65 must be a multiple of num_attention_heads 4");
  names(
      R"({"model_type": "mistral", "num_hidden_layers": 0, "intermediate_size": 8, )" + sizes + "}",
      "num_hidden_layers is 0; expected 1 to 4096");
  names(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 50, "n_head": 7, "vocab_size": 100,
            "n_positions": 64})",
        "n_embd 50 must be a multiple of n_head 7");
  names(R"({"model_type": "mamba", "hidden_size": 64})", "python -m zerocore plan");
  names(R"({"model_type": "gpt2", "n_layer": 2})", "n_head is missing");
  names(R"({"model_type": "gpt2", "model_type": "gpt2"})", "has the key \"model_type\" twice");
  names(std::string("{}\0x", 4), "NUL");
  names("{} x", "is not valid JSON");
}

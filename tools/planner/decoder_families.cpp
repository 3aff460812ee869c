#include "tools/planner/decoder_families.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::planner {
namespace {

using Json = nlohmann::json;

// A family's parameters, a line each: "NAME SIZE..." is NAME.weight, "=NAME SIZE..." is NAME
// itself. A size is a number, a letter of `sizes` below or a key of the config, or a sum of
// products of these. "+b" adds NAME.bias, of the first size; "+b?KEY" if KEY is true. "?KEY" and
// "?!KEY" keep the line if KEY is true or above 0, or is not; "?KEY=VALUE" if KEY has this value;
// "?KEY!=SIZE" if KEY is another size; "?sparse" in layers with experts.
struct DecoderFamily {
  const char* model_types;  // by spaces
  std::string before, layers, block, after;
  const char* defaults = "{}";  // of keys that the file lacks
};

struct SizeNames {
  char letter;
  std::vector<const char*> keys;
  const char* otherwise = nullptr;  // if none is given, or null
};
const std::vector<SizeNames>& sizes() {
  static const std::vector<SizeNames> names = {
      {'H', {"hidden_size", "n_embd", "d_model"}},
      {'L', {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
      {'A', {"num_attention_heads", "n_head", "n_heads", "num_heads"}},
      {'V', {"vocab_size"}},
      {'C', {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"}},
      {'I', {"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"}},
      {'G', {"num_key_value_heads", "num_kv_heads"}, "A"},  // heads of keys and values
      {'D', {"head_dim"}, "H/A"},                           // channels of a head
      {'E', {"num_experts", "num_local_experts", "n_routed_experts"}, "0"},
      {'M', {"moe_intermediate_size"}},
      {'T', {"num_experts_per_tok", "experts_per_token"}, "0"}};
  return names;
}

const std::string embedding = "model.embed_tokens V H\n";
const std::string head = "lm_head V H ?!tie_word_embeddings\n";
const std::string rms_end = "model.norm H\n" + head, layer_end = "model.norm H +b\n" + head;

// Attention by separate matrices, with its biases by a key.
std::string attention(const std::string& qkv_bias = "", const std::string& output_bias = "",
                      const std::string& output = "o_proj") {
  return "self_attn.q_proj A*D H " + qkv_bias + "\nself_attn.k_proj G*D H " + qkv_bias +
         "\nself_attn.v_proj G*D H " + qkv_bias + "\nself_attn." + output + " H A*D " +
         output_bias + "\n";
}
// Adds q_norm and k_norm: over each head, or over all.
const std::string head_norms = "self_attn.q_norm D\nself_attn.k_norm D\n",
                  whole_norms = "self_attn.q_norm A*D\nself_attn.k_norm G*D\n";

std::string gated(const std::string& name = "mlp", const std::string& width = "I",
                  const std::string& more = "") {
  return name + ".gate_proj " + width + " H " + more + "\n" + name + ".up_proj " + width + " H " +
         more + "\n" + name + ".down_proj H " + width + " " + more + "\n";
}
// A MLP of two matrices with these names.
std::string plain(const std::string& up, const std::string& down, const std::string& bias = "+b",
                  const std::string& width = "I") {
  return up + " " + width + " H " + bias + "\n" + down + " H " + width + " " + bias + "\n";
}
std::string experts(const std::string& name = "mlp", const std::string& width = "M",
                    const std::string& router = "gate") {
  return name + "." + router + " E H ?sparse\n=" + name + ".experts.gate_up_proj E 2*" + width +
         " H ?sparse\n=" + name + ".experts.down_proj E H " + width + " ?sparse\n";
}
// Norms before and after attention and MLP.
std::string norms(std::initializer_list<const char*> names, const std::string& bias = "") {
  std::string text;
  for (const char* name : names) text += std::string(name) + " H " + bias + "\n";
  return text;
}
const std::string two_norms = norms({"input_layernorm", "post_attention_layernorm"}),
                  two_layer_norms = norms({"input_layernorm", "post_attention_layernorm"}, "+b"),
                  four_norms = two_norms +
                               norms({"pre_feedforward_layernorm", "post_feedforward_layernorm"}),
                  late_norms = norms({"post_attention_layernorm", "post_feedforward_layernorm"});

const std::string latent_attention =
    "self_attn.q_proj A*qk_nope_head_dim+A*qk_rope_head_dim H ?!q_lora_rank\n"
    "self_attn.q_a_proj q_lora_rank H +b?attention_bias ?q_lora_rank\n"
    "self_attn.q_a_layernorm q_lora_rank ?q_lora_rank\n"
    "self_attn.q_b_proj A*qk_nope_head_dim+A*qk_rope_head_dim q_lora_rank ?q_lora_rank\n"
    "self_attn.kv_a_proj_with_mqa kv_lora_rank+qk_rope_head_dim H +b?attention_bias\n"
    "self_attn.kv_a_layernorm kv_lora_rank\n"
    "self_attn.kv_b_proj A*qk_nope_head_dim+A*v_head_dim kv_lora_rank\n"
    "self_attn.o_proj H A*v_head_dim +b?attention_bias\n";
const std::string shared_experts =
    gated("mlp.shared_experts", "n_shared_experts*M", "?sparse ?n_shared_experts");

const std::string biased = attention("+b?attention_bias", "+b?attention_bias");

DecoderFamily model(const char* types, const std::string& block, const char* defaults = "{}",
                    const std::string& end = rms_end) {
  return {types, embedding, "model.layers.", block, end, defaults};
}

// The decoders of Llama's names.
const std::vector<DecoderFamily> llama_like = {
    model("llama granite", biased + gated("mlp", "I", "+b?mlp_bias") + two_norms),
    model("smollm3", biased + gated("mlp", "I", "+b?mlp_bias") + two_norms,
          R"({"num_key_value_heads": 4, "tie_word_embeddings": true})"),
    model("seed_oss",
          attention("+b?attention_bias", "+b?attention_out_bias") +
              gated("mlp", "I", "+b?mlp_bias") + two_norms,
          R"({"attention_bias": true, "num_key_value_heads": 8, "head_dim": 128})"),
    model("arcee", biased + plain("mlp.up_proj", "mlp.down_proj", "+b?mlp_bias") + two_norms),
    model("ernie4_5",
          attention("+b?use_bias", "+b?use_bias") + gated("mlp", "I", "+b?use_bias") + two_norms,
          R"({"num_key_value_heads": 2, "head_dim": 128, "tie_word_embeddings": true})"),
    model("mistral ministral", attention() + gated() + two_norms, R"({"num_key_value_heads": 8})"),
    model("qwen2", attention("+b") + gated() + two_norms, R"({"num_key_value_heads": 32})"),
    model("qwen3", biased + head_norms + gated() + two_norms,
          R"({"num_key_value_heads": 32, "head_dim": 128})"),
    model("qwen2_moe",
          attention("+b?qkv_bias") + gated("mlp", "I", "?!sparse") + experts() +
              gated("mlp.shared_expert", "shared_expert_intermediate_size", "?sparse") +
              "mlp.shared_expert_gate 1 H ?sparse\n" + two_norms,
          R"({"num_key_value_heads": 16, "qkv_bias": true, "num_experts": 60,
              "decoder_sparse_step": 1, "mlp_only_layers": [],
                "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632})"),
    model("qwen3_moe", biased + head_norms + gated("mlp", "I", "?!sparse") + experts() + two_norms,
          R"({"num_key_value_heads": 4, "num_experts": 128, "moe_intermediate_size": 768,
              "decoder_sparse_step": 1, "mlp_only_layers": []})"),
    model("mixtral", attention() + experts("mlp", "I") + two_norms,
          R"({"num_key_value_heads": 8, "num_local_experts": 8})"),
    model("granitemoe", biased + experts("block_sparse_moe", "I", "router") + two_norms,
          R"({"num_local_experts": 8})"),
    model("olmoe", biased + whole_norms + experts("mlp", "I") + two_norms,
          R"({"num_key_value_heads": 16, "num_experts": 64})"),
    model("phimoe", biased + experts("mlp", "I", "router") + two_layer_norms,
          R"({"num_key_value_heads": 8, "num_local_experts": 16})",
          "model.norm H +b\nlm_head V H +b?lm_head_bias ?!tie_word_embeddings\n"),
    model("gemma", biased + gated() + two_norms,
          R"({"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": true})"),
    model("gemma2", biased + gated() + four_norms,
          R"({"num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": true})"),
    model("gemma3_text", biased + head_norms + gated() + four_norms,
          R"({"num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": true})"),
    model("olmo", biased + gated(), "{}", head),
    model("olmo2 olmo3", biased + whole_norms + gated() + late_norms),
    model("exaone4", attention() + head_norms + gated() + late_norms,
          R"({"num_key_value_heads": 32})"),
    model("cohere",
          biased + "self_attn.q_norm A D ?use_qk_norm\nself_attn.k_norm G D ?use_qk_norm\n" +
              gated() + norms({"input_layernorm"}),
          R"({"tie_word_embeddings": true})"),
    model("cohere2", biased + gated() + norms({"input_layernorm"}),
          R"({"tie_word_embeddings": true})"),
    model("stablelm",
          attention("+b?use_qkv_bias") + gated() + norms({"input_layernorm"}, "+b") +
              "post_attention_layernorm H +b ?!use_parallel_residual\n"
              // A norm for each head.
              "=self_attn.q_layernorm.norms A D ?qk_layernorm\n"
              "=self_attn.k_layernorm.norms G D ?qk_layernorm\n",
          R"({"num_key_value_heads": 32})", layer_end),
    model("starcoder2",
          attention("+b?use_bias", "+b?use_bias") + plain("mlp.c_fc", "mlp.c_proj", "+b?use_bias") +
              two_layer_norms,
          R"({"num_key_value_heads": 2, "use_bias": true, "tie_word_embeddings": true})",
          layer_end),
    model("nemotron",
          biased + plain("mlp.up_proj", "mlp.down_proj", "+b?mlp_bias") + two_layer_norms, "{}",
          layer_end),
    model("phi",
          attention("+b", "+b", "dense") +
              "self_attn.q_layernorm D +b ?qk_layernorm\nself_attn.k_layernorm D +b "
              "?qk_layernorm\n" +
              plain("mlp.fc1", "mlp.fc2") + norms({"input_layernorm"}, "+b"),
          "{}",
          "model.final_layernorm H +b\nlm_head V H +b ?!tie_word_embeddings\n"
          "=lm_head.bias V ?tie_word_embeddings\n"),
    model("phi3",
          "self_attn.o_proj H A*D\nself_attn.qkv_proj A*D+2*G*D H\nmlp.gate_up_proj 2*I H\n"
          "mlp.down_proj H I\n" +
              two_norms),
    model(
        "glm",
        attention("+b?attention_bias") + "mlp.gate_up_proj 2*I H\nmlp.down_proj H I\n" + two_norms,
        R"({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": true})"),
    model("glm4",
          attention("+b?attention_bias") + "mlp.gate_up_proj 2*I H\nmlp.down_proj H I\n" +
              two_norms + norms({"post_self_attn_layernorm", "post_mlp_layernorm"}),
          R"({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": true})"),
    model("deepseek_v2",
          latent_attention + gated("mlp", "I", "?!sparse") + experts() + shared_experts + two_norms,
          R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
                "moe_intermediate_size": 1407, "n_shared_experts": 2, "first_k_dense_replace": 0})"),
    model("deepseek_v3",
          latent_attention + gated("mlp", "I", "?!sparse") + experts() + shared_experts + two_norms,
          R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
                "moe_intermediate_size": 2048, "n_shared_experts": 1,
                "first_k_dense_replace": 3})"),
    model("gpt_oss",
          biased +
              "=self_attn.sinks A\nmlp.router E H +b\n=mlp.experts.gate_up_proj E H 2*I\n"
              "=mlp.experts.gate_up_proj_bias E 2*I\n=mlp.experts.down_proj E I H\n"
              "=mlp.experts.down_proj_bias E H\n" +
              two_norms,
          R"({"num_key_value_heads": 8, "head_dim": 64, "attention_bias": true,
                "num_local_experts": 128})")};

const std::string gpt_norms = norms({"ln_1", "ln_2"}, "+b");
const std::string gpt_end = "transformer.ln_f H +b\n" + head;
const std::string biased_end =
    "transformer.ln_f H +b\nlm_head V H +b ?!tie_word_embeddings\n"
    "=lm_head.bias V ?tie_word_embeddings\n";
const std::string tables = "transformer.wte V H\ntransformer.wpe C H\n";

const std::vector<DecoderFamily> others = {
    {"gpt2", tables, "transformer.h.",
     gpt_norms + "attn.c_attn H 3*H\n=attn.c_attn.bias 3*H\nattn.c_proj H H +b\nmlp.c_fc H I\n"
                 "=mlp.c_fc.bias I\nmlp.c_proj I H\n=mlp.c_proj.bias H\n",
     gpt_end, R"({"intermediate_size": "4*H", "tie_word_embeddings": true})"},
    {"gpt_bigcode", tables, "transformer.h.",
     gpt_norms +
         "attn.c_attn H+2*D H +b ?multi_query\nattn.c_attn 3*H H +b ?!multi_query\n"
         "attn.c_proj H H +b\n" +
         plain("mlp.c_fc", "mlp.c_proj"),
     gpt_end, R"({"intermediate_size": "4*H", "tie_word_embeddings": true, "multi_query": true})"},
    {"gptj", "transformer.wte V H\n", "transformer.h.",
     norms({"ln_1"}, "+b") +
         "attn.k_proj H H\nattn.v_proj H H\nattn.q_proj H H\nattn.out_proj H H\n" +
         plain("mlp.fc_in", "mlp.fc_out"),
     biased_end, R"({"intermediate_size": "4*H"})"},
    {"codegen", "transformer.wte V H\n", "transformer.h.",
     norms({"ln_1"}, "+b") + "attn.qkv_proj 3*H H\nattn.out_proj H H\n" +
         plain("mlp.fc_in", "mlp.fc_out"),
     biased_end, R"({"intermediate_size": "4*H"})"},
    {"gpt_neox", "gpt_neox.embed_in V H\n", "gpt_neox.layers.",
     two_layer_norms +
         "attention.query_key_value 3*H H +b?attention_bias\nattention.dense H H "
         "+b?attention_bias\n" +
         plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
     "gpt_neox.final_layer_norm H +b\n" + head, R"({"attention_bias": true})"},
    {"bloom", "transformer.word_embeddings V H\ntransformer.word_embeddings_layernorm H +b\n",
     "transformer.h.",
     two_layer_norms + "self_attention.query_key_value 3*H H +b\nself_attention.dense H H +b\n" +
         plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "+b", "4*H"),
     gpt_end, R"({"tie_word_embeddings": true, "max_position_embeddings": 2048})"},
    {"falcon", "transformer.word_embeddings V H\n", "transformer.h.",
     "self_attention.query_key_value 2*G*D+A*D H +b?bias ?new_decoder_architecture\n"
     "self_attention.query_key_value H+2*D H +b?bias ?!new_decoder_architecture ?multi_query\n"
     "self_attention.query_key_value 3*H H +b?bias ?!new_decoder_architecture ?!multi_query\n"
     "self_attention.dense H H +b?bias\n" +
         plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "+b?bias") +
         "input_layernorm H +b ?!parallel_attn\npost_attention_layernorm H +b ?!parallel_attn\n"
         "ln_attn H +b ?parallel_attn ?num_ln_in_parallel_attn=2\n"
         "ln_mlp H +b ?parallel_attn ?num_ln_in_parallel_attn=2\n"
         "ln_attn H +b ?parallel_attn ?num_ln_in_parallel_attn=null ?new_decoder_architecture\n"
         "ln_mlp H +b ?parallel_attn ?num_ln_in_parallel_attn=null ?new_decoder_architecture\n"
         "input_layernorm H +b ?parallel_attn ?num_ln_in_parallel_attn=1\n"
         "input_layernorm H +b ?parallel_attn ?num_ln_in_parallel_attn=null "
         "?!new_decoder_architecture\n",
     gpt_end,
     R"({"intermediate_size": "4*H", "tie_word_embeddings": true, "multi_query": true,
           "parallel_attn": true, "max_position_embeddings": 2048})"},
    {"mpt", "transformer.wte V H\n", "transformer.blocks.",
     norms({"norm_1", "norm_2"}) + "attn.Wqkv 3*H H\nattn.out_proj H H\n" +
         plain("ffn.up_proj", "ffn.down_proj", "", "4*H"),
     "transformer.norm_f H\n" + head, R"({"tie_word_embeddings": true})"},
    {"opt",
     "model.decoder.embed_tokens V word_embed_proj_dim\nmodel.decoder.embed_positions C+2 H\n"
     "model.decoder.project_out word_embed_proj_dim H ?word_embed_proj_dim!=H\n"
     "model.decoder.project_in H word_embed_proj_dim ?word_embed_proj_dim!=H\n"
     "model.decoder.final_layer_norm H +b ?layer_norm_elementwise_affine "
     "?do_layer_norm_before ?!_remove_final_layer_norm\n",
     "model.decoder.layers.",
     "self_attn.k_proj H H +b?enable_bias\nself_attn.v_proj H H +b?enable_bias\n"
     "self_attn.q_proj H H +b?enable_bias\nself_attn.out_proj H H +b?enable_bias\n"
     "self_attn_layer_norm H +b ?layer_norm_elementwise_affine\n" +
         plain("fc1", "fc2", "+b?enable_bias") +
         "final_layer_norm H +b ?layer_norm_elementwise_affine\n",
     "lm_head V word_embed_proj_dim ?!tie_word_embeddings\n",
     R"({"tie_word_embeddings": true, "enable_bias": true, "do_layer_norm_before": true,
           "layer_norm_elementwise_affine": true, "word_embed_proj_dim": "H"})"},
    {"internlm2", "model.tok_embeddings V H\n", "model.layers.",
     "attention.wqkv A*D+2*G*D H +b?bias\nattention.wo H A*D +b?bias\nfeed_forward.w1 I H\n"
     "feed_forward.w3 I H\nfeed_forward.w2 H I\nattention_norm H\nffn_norm H\n",
     "model.norm H\noutput V H ?!tie_word_embeddings\n", R"({"bias": true})"}};

const std::vector<DecoderFamily>& families() {
  static const std::vector<DecoderFamily> all = [] {
    std::vector<DecoderFamily> table = llama_like;
    table.insert(table.end(), others.begin(), others.end());
    return table;
  }();
  return all;
}

const DecoderFamily* family_named(const std::string& model_type) {
  for (const DecoderFamily& family : families())
    if (std::ranges::count(words_of(family.model_types), model_type) > 0) return &family;
  return nullptr;
}

// Evaluates sizes and conditions over the keys of a config, and collects problems.
class Keys {
 public:
  Keys(const Json& given, const Json& defaults) : given_(given), defaults_(defaults) {}

  // Returns the value of "A*D+2*G*D"; 1 if a key has a problem.
  std::int64_t size(std::string_view sum) {
    std::int64_t value = 0;
    for (const std::string& term : split(sum, '+')) {
      std::int64_t product = 1;
      for (const std::string& factor : split(term, '*')) product *= quotient(factor);
      value += product;
    }
    return value;
  }

  bool flag(const std::string& key) const {
    const Json value = found({key.c_str()});
    return value == true || (value.is_number() && value > 0);
  }

  // Returns whether a line with these conditions, "?KEY", stays.
  bool holds(std::string_view condition) {
    condition.remove_prefix(1);
    const std::size_t equals = condition.find('=');
    if (equals == std::string_view::npos)
      return condition.front() == '!' ? !flag(std::string(condition.substr(1)))
                                      : flag(std::string(condition));
    if (condition[equals - 1] == '!')
      return size(condition.substr(0, equals - 1)) != size(condition.substr(equals + 1));
    return found({std::string(condition.substr(0, equals)).c_str()}).dump() ==
           condition.substr(equals + 1);
  }

  // Returns 0 if the file does not say, or null.
  std::int64_t optional(char letter) const {
    const Json value = found(names_of(letter)->keys);
    return value.is_number_integer() && is_usable(value) ? value.get<std::int64_t>() : 0;
  }

  Json value(const char* key) const { return found({key}); }
  // Returns null for a key without a default: the family does not have the key.
  Json own_value(const char* key) const { return defaults_.contains(key) ? found({key}) : Json(); }
  const std::string& problems() const { return problems_; }

 private:
  static std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream{std::string(text)};
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
  }
  static const SizeNames* names_of(char letter) {
    const auto found = std::ranges::find(sizes(), letter, &SizeNames::letter);
    return found == sizes().end() ? nullptr : &*found;
  }
  static bool is_usable(const Json& value) {
    constexpr std::int64_t most = std::int64_t{1} << 24;
    return value.is_number_integer() && value >= 0 && value <= most;
  }

  // Returns the value of the first key that the object has; null: none.
  static const Json* first_of(const Json& object, const std::vector<const char*>& keys) {
    for (const char* key : keys)
      if (const auto at = object.find(key); at != object.end()) return &*at;
    return nullptr;
  }

  // Returns the file's value of one of these keys, or otherwise the family's; null if there is
  // none.
  Json found(const std::vector<const char*>& keys) const {
    const Json* value = first_of(given_, keys);
    if (value == nullptr) value = first_of(defaults_, keys);
    return value == nullptr ? Json() : *value;
  }

  // "8", "H", "H/A" or a key.
  std::int64_t quotient(const std::string& text) {
    const std::size_t slash = text.find('/');
    const std::int64_t value = single(text.substr(0, slash));
    if (slash == std::string::npos) return value;
    const std::int64_t by = std::max<std::int64_t>(1, single(text.substr(slash + 1)));
    if (value % by != 0)
      problem(key_of(text.substr(0, slash)) + " " + std::to_string(value) +
              " must be a multiple of " + key_of(text.substr(slash + 1)) + " " +
              std::to_string(by));
    return std::max<std::int64_t>(1, value / by);
  }

  static std::string key_of(const std::string& name) {
    const SizeNames* names = name.size() == 1 ? names_of(name.front()) : nullptr;
    return names == nullptr ? name : names->keys.front();
  }

  std::int64_t single(const std::string& name) {
    std::int64_t number = 0;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data(), end, number).ptr == end) return number;
    const SizeNames* names = name.size() == 1 ? names_of(name.front()) : nullptr;
    const std::vector<const char*> keys =
        names == nullptr ? std::vector{name.c_str()} : names->keys;
    const Json* value = first_of(given_, keys);
    const Json* fallback = first_of(defaults_, keys);
    const char* otherwise = names == nullptr ? nullptr : names->otherwise;
    // Null has the meaning of the letter's own rule, before the family's.
    if (value != nullptr && value->is_null() && otherwise != nullptr) fallback = nullptr;
    if (value != nullptr && !value->is_null()) {
      if (is_usable(*value)) return value->get<std::int64_t>();
      problem(key_of(name) + " is " + printable(value->dump()) +
              "; expected a whole number up to 16777216");
    } else if (fallback != nullptr) {
      return fallback->is_string() ? size(fallback->get<std::string>())
                                   : fallback->get<std::int64_t>();
    } else if (otherwise != nullptr) {
      return size(otherwise);
    } else {
      problem(key_of(name) + " is missing");
    }
    return 1;
  }

  void problem(const std::string& text) {
    if (problems_.find(text) == std::string::npos) problems_ += "\n  " + text;
  }

  const Json& given_;
  const Json& defaults_;
  std::string problems_;
};

// Adds the tensors of lines whose conditions hold.
class Tensors {
 public:
  explicit Tensors(Keys& keys) : keys_(keys) {}

  void add(const std::string& lines, const std::string& prefix, bool sparse) {
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) add_line(words_of(line), prefix, sparse);
  }
  const std::vector<NamedTensor>& all() const { return all_; }
  double elements() const { return elements_; }

 private:
  void add_line(const std::vector<std::string>& words, const std::string& prefix, bool sparse) {
    Shape shape;
    bool bias = false;
    for (auto word = words.begin() + 1; word != words.end(); ++word) {
      if (word->starts_with("+b"))
        bias = *word == "+b" || keys_.holds(word->substr(2));
      else if (*word == "?sparse" || *word == "?!sparse") {
        if (sparse != (*word == "?sparse")) return;
      } else if (word->starts_with('?')) {
        if (!keys_.holds(*word)) return;
      } else {
        shape.push_back(keys_.size(*word));
      }
    }
    const std::string& name = words.front();
    if (name.starts_with('='))
      add_tensor(prefix + name.substr(1), shape);
    else
      add_tensor(prefix + name + ".weight", shape);
    if (bias) add_tensor(prefix + name + ".bias", {shape.front()});
  }

  void add_tensor(const std::string& name, const Shape& shape) {
    double elements = 1;
    for (const std::int64_t size : shape) elements *= static_cast<double>(size);
    elements_ += elements;
    all_.push_back({name, shape});
  }

  Keys& keys_;
  std::vector<NamedTensor> all_;
  double elements_ = 0;
};

// Returns whether this layer has experts, by those keys among the family's that say so.
bool is_sparse(Keys& keys, std::int64_t layer) {
  const auto number = [&](const char* key, std::int64_t otherwise) {
    const Json value = keys.own_value(key);
    return value.is_number_integer() ? value.get<std::int64_t>() : otherwise;
  };
  const Json dense = keys.own_value("mlp_only_layers");
  const std::int64_t every = std::max<std::int64_t>(1, number("decoder_sparse_step", 1));
  return keys.size("E") > 0 && layer >= number("first_k_dense_replace", 0) &&
         (layer + 1) % every == 0 && std::ranges::count(dense, Json(layer)) == 0;
}

constexpr std::int64_t most_layers = 4096;
constexpr double most_parameters = 1e15;

}  // namespace

bool is_known_family(const std::string& model_type) {
  return family_named(model_type) != nullptr;
}

std::string known_families() {
  std::string names;
  for (const DecoderFamily& family : families())
    for (const std::string& name : words_of(family.model_types))
      names += (names.empty() ? "" : ", ") + name;
  return names;
}

ModelTerms terms_of_config(const Json& config) {
  static const Json none = Json::object();
  const Keys keys(config, none);
  ModelTerms terms;
  terms.context = keys.optional('C');
  terms.query_channels = keys.optional('A') * keys.optional('D');
  terms.experts_per_token = keys.optional('T');
  return terms;
}

ModelShape shape_of_config(const Json& config, const std::string& file) {
  const DecoderFamily& family = *family_named(config.value("model_type", "gpt2"));
  const Json defaults = Json::parse(family.defaults);
  Keys keys(config, defaults);
  const std::int64_t layers = keys.size("L");
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError(file + " is no model of transformers:" + problem);
  };
  if (layers < 1 || layers > most_layers)
    refuse("\n  num_hidden_layers is " + std::to_string(layers) + "; expected 1 to 4096");
  Tensors tensors(keys);
  tensors.add(family.before, "", false);
  for (std::int64_t layer = 0; layer < layers; ++layer)
    tensors.add(family.block, family.layers + std::to_string(layer) + ".", is_sparse(keys, layer));
  tensors.add(family.after, "", false);
  ModelTerms terms = terms_of_config(config);
  terms.query_channels = keys.value("kv_lora_rank").is_null()
                             ? keys.size("A*D")
                             : keys.size("A*qk_nope_head_dim+A*qk_rope_head_dim");
  if (!keys.problems().empty()) refuse(keys.problems());
  if (!(tensors.elements() < most_parameters)) refuse("\n  it has more than 1e15 parameters");
  return shape_of_tensors(file, tensors.all(), {}, terms);
}

}  // namespace zero::planner

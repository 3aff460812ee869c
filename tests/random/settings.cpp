#include "tests/random/settings.h"

#include <algorithm>

namespace random_draws {

namespace {

using zero::Text;
using Choices = std::vector<std::string>;

constexpr const char* accumulation_key = "gradient_accumulation_steps";
const std::string zero_optimization = "zero_optimization.", core = "zero_core.";

// An empty value leaves the key out.
void set(Text& keys, const std::string& key, const std::string& value) {
  if (!value.empty()) keys[key] = value;
}

std::string text_of_groups(const std::vector<int>& groups) {
  std::string list;
  for (const int group : groups) list += (list.empty() ? "" : ", ") + std::to_string(group);
  return groups.size() == 1 ? list : "[" + list + "]";
}

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int i = 1; i <= number; ++i)
    if (number % i == 0) all.push_back(i);
  return all;
}

std::vector<int> draw_groups(Dice& dice, int ranks) {
  std::vector<int> groups;
  if (ranks == 1 || dice.one_in(3)) return groups;
  groups.push_back(dice.one_in(4) ? dice.between(1, ranks) : dice.of(divisors(ranks)));
  for (int more = dice.below(3); more > 0; --more) {
    const int wider = groups.back() * dice.between(2, 3);
    if (wider <= ranks) groups.push_back(wider);
  }
  return groups;
}

// Returns whether the row can sum each micro step inside groups of this many ranks.
bool sums_inside(const Terms& terms, const Row& row, int ranks) {
  if (row.shard_group > 0) return row.shard_group == ranks;
  if (terms.groups.empty()) return ranks == terms.ranks;
  return std::ranges::count(terms.groups, ranks) > 0;
}

bool syncs_inside(const Terms& terms) {
  return terms.sync == "inner" && terms.accumulation > 1;
}

void draw_sync(Dice& dice, Terms& terms) {
  terms.sync = dice.of(Choices{"each", "last", "inner"});
  if (!syncs_inside(terms)) return;
  std::vector<int> levels;
  for (const int level : divisors(terms.ranks))
    if (level == terms.ranks || std::ranges::count(terms.groups, level) > 0)
      levels.push_back(level);
  terms.inner = dice.of(levels);
}

void draw_dtypes(Dice& dice, Terms& terms) {
  Text& keys = terms.keys;
  const int dtype = dice.below(5);
  if (dtype < 2) {
    keys["bf16.enabled"] = "true";
    if (dice.one_in(3)) keys["bf16.bf16_master_weights_and_grads"] = "true";
    if (dice.one_in(2) && keys.contains("bf16.bf16_master_weights_and_grads"))
      keys["bf16.bf16_optimizer_states"] = "true";
  } else if (dtype == 2) {
    keys["fp16.enabled"] = "true";
    keys["fp16.hysteresis"] = "1";
    keys["fp16.loss_scale_window"] = "2";
    keys["fp16.initial_scale_power"] = dice.text({"4", "8", "22"});
    if (dice.one_in(3)) keys["fp16.loss_scale"] = dice.text({"1", "128"});
    if (dice.one_in(3)) keys["fp16.fp16_master_weights_and_grads"] = "true";
  }
  set(keys, "communication_data_type", dice.text({"", "", "", "fp32", "bf16", "fp16"}));
  set(keys, "data_types.grad_accum_dtype", dice.text({"", "", "", "fp32", "bf16", "fp16"}));
}

void draw_optimizer(Dice& dice, Terms& terms) {
  Text& keys = terms.keys;
  const std::string type =
      dice.text({"AdamW", "AdamW", "Adam", "Lion", "Adagrad", "SGD", "Lamb", "Muon", "Adafactor"});
  terms.by_elements = type != "Lamb" && type != "Muon" && type != "Adafactor";
  keys["optimizer.type"] = type;
  keys["optimizer.params.lr"] = "0.01";
  keys["optimizer.params.weight_decay"] = dice.text({"0", "0.1"});
  if (type == "SGD") keys["optimizer.params.momentum"] = dice.text({"0", "0.9"});
  if (dice.one_in(4)) {
    keys["scheduler.type"] = "WarmupLR";
    keys["scheduler.params.warmup_num_steps"] = "3";
  }
  if (dice.one_in(4)) keys["zero_core.param_groups.biases.lr_scale"] = "2";
  keys["gradient_clipping"] = dice.text({"0", "0.5", "1"});
  const int scaling = dice.below(6);
  if (scaling == 0) keys["prescale_gradients"] = "true";
  if (scaling == 1) keys["gradient_predivide_factor"] = "3";
  if (scaling == 2) keys["gradient_allreduce_op"] = "sum";
}

void draw_formats(Dice& dice, Terms& terms) {
  Text& keys = terms.keys;
  const Choices formats = {"bf16", "fp8_e4m3", "mxfp8", "int8", "int4"};
  const bool plus_plus = dice.one_in(3);
  const int which = dice.between(1, 3);  // gathers, reductions, both
  if (plus_plus) {
    terms.stage3_alone = true;
    if (which & 1) keys[zero_optimization + "zero_quantized_weights"] = "true";
    if (which & 1 && dice.one_in(2))
      keys[zero_optimization + "zero_quantized_nontrainable_weights"] = "true";
    if (which & 2) keys[zero_optimization + "zero_quantized_gradients"] = "true";
    terms.persistence_free = !(which & 1);
  } else {
    set(keys, core + "wire.gather", which & 1 ? dice.of(formats) : "none");
    set(keys, core + "wire.reduce", which & 2 ? dice.of(formats) : "none");
  }
  terms.gathers_encoded = which & 1;
  terms.reduces_encoded = which & 2;
  set(keys, core + "wire.block_size", dice.text({"", "32", "96", "256"}));
}

// Draws formats inside nodes, here for the innermost group of sums.
void draw_inside(Dice& dice, Terms& terms) {
  const bool cut = terms.groups.empty() || terms.ranks % terms.groups.front() == 0;
  if (!cut || !dice.one_in(3)) return;
  const Choices formats = {"none", "none", "int8", "mxfp8"};
  if (terms.gathers_encoded) terms.keys[core + "wire.gather_inside"] = dice.of(formats);
  if (terms.reduces_encoded && dice.one_in(2))
    terms.keys[core + "wire.reduce_inside"] = dice.of(formats);
  if (!terms.keys.contains(core + "wire.gather_inside") &&
      !terms.keys.contains(core + "wire.reduce_inside"))
    return;
  terms.inside = dice.one_in(2) ? Terms::Inside::in_node : Terms::Inside::over_nodes;
}

// Returns whether the row has the bits of the terms.
bool allowed(const Terms& terms, const Row& row) {
  const int group = row.shard_group;
  const bool in_groups = group > 1 && group < terms.ranks;
  const bool replicates = row.stage == 0 || (group == 1 && !row.optimizer_over_all_ranks);
  if (terms.gathers_encoded && replicates) return false;
  if (terms.stage3_alone && (row.stage < 3 || group == 1)) return false;
  if (in_groups && std::ranges::count(terms.groups, group) == 0) return false;
  if (syncs_inside(terms) && !sums_inside(terms, row, terms.inner)) return false;
  const int node = terms.groups.empty() ? terms.ranks : terms.groups.front();
  if (terms.inside == Terms::Inside::in_node) return in_groups && node % group == 0;
  if (terms.inside == Terms::Inside::over_nodes)
    return !in_groups || (group > node && group % node == 0);
  return true;
}

std::vector<Row> allowed_rows(const Terms& terms) {
  std::vector<Row> rows;
  for (const int stage : {0, 1, 2}) rows.push_back({.stage = stage});
  for (const bool reshards : {true, false}) {
    rows.push_back({3, reshards});
    for (const int ranks : divisors(terms.ranks)) {
      rows.push_back({3, reshards, ranks, false});
      rows.push_back({3, reshards, ranks, true});
      rows.push_back({3, reshards, 0, false, ranks});
    }
  }
  std::erase_if(rows, [&](const Row& row) { return !allowed(terms, row); });
  return rows;
}

void draw_rank_terms(Dice& dice, Terms& terms) {
  const Terms before = terms;
  do {
    terms = before;
    terms.ranks = dice.of(std::vector<int>{1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 6, 8, 8});
    terms.groups = draw_groups(dice, terms.ranks);
    draw_sync(dice, terms);
    draw_inside(dice, terms);
  } while (allowed_rows(terms).empty());
}

void set_row(Dice& dice, const Terms& terms, const Row& row, Text& keys) {
  keys[zero_optimization + "stage"] = std::to_string(row.stage);
  if (!row.reshards) keys[core + "reshard_after_forward"] = "false";
  if (row.shard_group > 0)
    keys[dice.one_in(4) ? zero_optimization + "mics_shard_size" : core + "shard_group_size"] =
        std::to_string(row.shard_group);
  if (row.optimizer_over_all_ranks) keys[core + "optimizer_over_all_ranks"] = "true";
  if (row.second_copies > 0)
    keys[zero_optimization + "zero_hpz_partition_size"] = std::to_string(row.second_copies);
  const bool said_by_row = row.shard_group > 1 && row.shard_group < terms.ranks &&
                           terms.groups == std::vector<int>{row.shard_group};
  std::string groups = text_of_groups(terms.groups);
  if (terms.groups.empty()) {
    const bool larger = terms.inside == Terms::Inside::same;  // else a node must divide the ranks
    groups = dice.text(
        {"", "node", std::to_string(terms.ranks), std::to_string(terms.ranks + (larger ? 3 : 0))});
  }
  if (!said_by_row || dice.one_in(2)) set(keys, core + "reduce_group_size", groups);
  if (syncs_inside(terms) && !terms.groups.empty() && row.shard_group == 0)
    keys[core + "inner_group_size"] = std::to_string(terms.inner);
}

void set_sizes(Dice& dice, const Terms& terms, Text& keys) {
  set(keys, zero_optimization + "reduce_bucket_size", dice.text({"", "", "100", "300", "5000"}));
  set(keys, zero_optimization + "allgather_bucket_size", dice.text({"", "", "100", "300", "5000"}));
  const std::string stage3 = zero_optimization + "stage3_";
  set(keys, stage3 + "prefetch_bucket_size", dice.text({"", "", "0", "600", "1000000"}));
  set(keys, stage3 + "max_live_parameters", dice.text({"", "", "0", "600", "1000000"}));
  set(keys, stage3 + "max_reuse_distance", dice.text({"", "", "0", "600", "1000000"}));
  if (!terms.persistence_free || !dice.one_in(3)) return;
  set(keys, stage3 + "param_persistence_threshold", dice.text({"0", "10", "20", "400"}));
  set(keys, stage3 + "model_persistence_threshold", dice.text({"", "0", "60", "1000"}));
}

void set_offload(Dice& dice, const Terms& terms, const Row& row, const std::string& directory,
                 Text& keys) {
  const std::string states = zero_optimization + "offload_optimizer.",
                    params = zero_optimization + "offload_param.";
  const bool whole_optimizer =
      row.stage == 0 || (row.shard_group == 1 && !row.optimizer_over_all_ranks);
  if (whole_optimizer || !terms.by_elements || !dice.one_in(3)) {
    if (dice.one_in(8)) keys[states + "device"] = "cpu";
    return;
  }
  const bool parameters_too = row.stage == 3 && !row.optimizer_over_all_ranks && dice.one_in(2);
  keys[states + "device"] = parameters_too && dice.one_in(3) ? "none" : "nvme";
  keys[states + "nvme_path"] = directory;
  set(keys, states + "buffer_count", dice.text({"", "1", "2", "6"}));
  set(keys, states + "pipeline_read", dice.text({"", "true", "false"}));
  set(keys, states + "pipeline_write", dice.text({"", "true", "false"}));
  set(keys, states + "fast_init", dice.text({"", "true"}));
  set(keys, states + "ratio", dice.text({"", "", "0.5", "0"}));
  if (parameters_too) {
    keys[params + "device"] = "nvme";
    keys[params + "nvme_path"] = directory;
    set(keys, params + "max_in_cpu", dice.text({"0", "300", ""}));
    set(keys, params + "buffer_count", dice.text({"", "1", "2"}));
  }
  set(keys, core + "offload_chunk_bytes", dice.text({"1", "10000", ""}));
  set(keys, core + "offload_cache_bytes", dice.text({"", "", "5000"}));
  keys["aio.block_size"] = dice.text({"4096", "16384"});
  keys["aio.queue_depth"] = dice.text({"1", "3", "32"});
}

void set_checks(Dice& dice, const Terms& terms, Setting& setting) {
  setting.executor = dice.text({"inline", "worker"});
  setting.strict = dice.one_in(6);
  setting.delays = dice.one_in(10);
  setting.looks = dice.one_in(3);
  Text& keys = setting.keys;
  set(keys, core + "verify_every", dice.text({"", "0", "1"}));
  if (dice.one_in(5)) keys[core + "verify_comm"] = "true";
  if (dice.one_in(4)) keys["checkpoint.writer.decoupled"] = "true";
  if ((terms.gathers_encoded || terms.reduces_encoded) && dice.one_in(4))
    keys[core + "wire.max_error"] = "0.5";
  if (terms.accumulation > 1)
    keys[core + "gradient_sync"] = terms.sync;
  else
    set(keys, core + "gradient_sync", dice.text({"", "each", "last", "inner"}));
}

}  // namespace

Terms draw_terms(Dice& dice) {
  Terms terms;
  terms.dims = {.vocabulary = dice.between(2, 40),
                .channels = dice.between(1, 24),
                .blocks = dice.between(1, 6),
                .batch = dice.between(1, 3)};
  terms.accumulation = dice.of(std::vector<int>{1, 1, 2, 3});
  terms.keys["train_micro_batch_size_per_gpu"] = std::to_string(terms.dims.batch);
  terms.keys[accumulation_key] = std::to_string(terms.accumulation);
  terms.keys[core + "time_limit_seconds"] = "60";
  draw_dtypes(dice, terms);
  draw_optimizer(dice, terms);
  if (dice.one_in(3)) draw_formats(dice, terms);
  draw_rank_terms(dice, terms);
  return terms;
}

Terms on_other_ranks(Dice& dice, const Terms& terms) {
  Terms other = terms;
  other.keys.erase(core + "wire.gather_inside");
  other.keys.erase(core + "wire.reduce_inside");
  other.inside = Terms::Inside::same;
  draw_rank_terms(dice, other);
  return other;
}

Setting draw_setting(Dice& dice, const Terms& terms, const std::string& directory) {
  Setting setting;
  setting.row = dice.of(allowed_rows(terms));
  set_row(dice, terms, setting.row, setting.keys);
  set_sizes(dice, terms, setting.keys);
  set_offload(dice, terms, setting.row, directory, setting.keys);
  set_checks(dice, terms, setting);
  return setting;
}

zero::Config config_of(const Terms& terms, const Setting& setting) {
  Text keys = terms.keys;
  for (const auto& [key, value] : setting.keys) keys[key] = value;
  return zero::parse_config("{}", "the draw", keys);
}

namespace {

std::string text_of(const Text& keys) {
  std::string text;
  for (const auto& [key, value] : keys) text += " " + key + "=" + value;
  return text;
}

}  // namespace

std::string text_of(const Terms& terms) {
  const toy::Dims& d = terms.dims;
  return std::to_string(terms.ranks) + " ranks, vocabulary " + std::to_string(d.vocabulary) +
         ", channels " + std::to_string(d.channels) + ", blocks " + std::to_string(d.blocks) + ":" +
         text_of(terms.keys);
}

std::string text_of(const Setting& setting) {
  return setting.executor + (setting.strict ? ", strict" : "") +
         (setting.delays ? ", with delays" : "") +
         (setting.looks ? ", evaluates between steps" : "") + ":" + text_of(setting.keys);
}

}  // namespace random_draws

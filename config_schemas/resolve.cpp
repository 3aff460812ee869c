#include "config_schemas/resolve.h"

#include <algorithm>
#include <array>

#include "config_schemas/auto_values.h"
#include "config_schemas/values.h"
#include "optim/lr_schedule.h"
#include "zero/base/error.h"
#include "zero/plan/elasticity.h"
#include "zero/plan/pipeline_schedule.h"
#include "zero/plan/placement.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view defaults_key = "zero_core.deepspeed_defaults";
struct BatchKey {
  std::string_view path;
  std::int64_t BatchOptions::*member;
};
constexpr std::array<BatchKey, 3> batch_keys{
    {{"train_batch_size", &BatchOptions::train_batch_size},
     {"train_micro_batch_size_per_gpu", &BatchOptions::train_micro_batch_size_per_gpu},
     {"gradient_accumulation_steps", &BatchOptions::gradient_accumulation_steps}}};
constexpr std::array<std::string_view, 2> cosine_rates{"scheduler.params.warmup_min_lr",
                                                       "scheduler.params.warmup_max_lr"};

constexpr double cycled_beta2 = 0.99;

bool is_placeholder(const ParsedValue& given) {
  return is_auto(*given.node) && !takes_auto(*given.key);
}

// Types determine the allowed parameters, and with deepspeed_defaults also the defaults.
bool comes_first(const ParsedValue& given) {
  return last_name(given.key->path) == "type" || given.key->path == defaults_key;
}

bool is_false(std::string_view shown) {
  const std::string text = lower_case(shown);
  return text == "false" || text == "0" || text == "0.0" || text == "null" || text.empty();
}

class Resolver {
 public:
  Resolver(std::vector<ParsedValue> given, const TrainerValues& values,
           const Circumstances& circumstances, ProblemList& problems)
      : given_(std::move(given)),
        values_(values),
        circumstances_(circumstances),
        problems_(problems) {}

  Resolution run() {
    store();
    note_strings();
    check_parameters();
    check_required();
    if (config_.batch.elasticity.enabled) leave_batch_to_elasticity();
    leave_accumulation_open();
    check_batch();
    check_pipeline();
    check_nesterov();
    check_momentum();
    note_warmup();
    note_optimizer();
    check_precision();
    read_shard_group();
    read_cosine_rates();
    if (circumstances_.whole_file) complete_batch();
    place_batch();
    return {std::move(config_), std::move(given_)};
  }

 private:
  void store() {
    const auto rest = std::stable_partition(given_.begin(), given_.end(), comes_first);
    for (auto given = given_.begin(); given != rest; ++given) set(*given);
    set_defaults();
    for (auto given = rest; given != given_.end(); ++given)
      if (!is_placeholder(*given)) set(*given);
    set_auto_values();
    if (config_.scheduler.type == "WarmupDecayLR" && !config_.scheduler.warmup_max_lr)
      config_.scheduler.warmup_max_lr = config_.optimizer.learning_rate;
    set_torch_decay();
    config_.optimizer_given = is_given("optimizer.type") || is_given("optimizer.params.lr");
    // With Muon, lr also holds for the parameters that Adam updates, unless adam_lr is given.
    if (optim::has_auxiliary_rule(config_.optimizer) && !is_given("optimizer.params.adam_lr") &&
        is_given("optimizer.params.lr"))
      config_.optimizer.adam_lr.reset();
  }

  bool is_given(std::string_view path) const { return find(given_, path) != nullptr; }

  void set(ParsedValue& given) {
    Outcome outcome = set_value(*given.key, given.name, *given.node, config_);
    given.usable = outcome.problem.empty();
    given.shown = std::move(outcome.shown);
    if (!given.usable) problems_.add(given.node->position, given.path + ": " + outcome.problem);
    if (given.usable && is_quoted(*given.key, *given.node))
      strings_ += (strings_.empty() ? "" : ", ") + given.path;
  }

  // YAML loaders read 1e-5 as a string.
  void note_strings() {
    if (!strings_.empty())
      config_.notices.push_back(strings_ +
                                ": read as the number or truth value that the string names; write "
                                "it without quotes");
  }

  // WarmupLR without a maximum takes the optimizer's rate (0.001 before DeepSpeed 0.17.2),
  // WarmupDecayLR 0.001, unless the file gives null.
  void set_defaults() {
    const bool old = config_.zero_core.deepspeed_defaults == "0.14";
    const std::string& type = config_.scheduler.type;
    config_.optimizer = optim::default_options(config_.optimizer.type);
    if (old) config_.gradient_clipping = 0;
    if (type == "WarmupDecayLR" || (old && type == "WarmupLR"))
      config_.scheduler.warmup_max_lr = 1e-3;
  }

  // Sets the values in the order of the table, because the schedule's rates depend on the
  // optimizer's.
  void set_auto_values() {
    std::vector<ParsedValue*> open;
    for (ParsedValue& given : given_)
      if (is_placeholder(given) && !comes_first(given)) open.push_back(&given);
    std::ranges::stable_sort(open, {}, [](const ParsedValue* given) { return given->key; });
    for (ParsedValue* given : open) set_auto(*given);
  }

  void set_auto(ParsedValue& given) {
    const bool has_rate = find(given_, "optimizer.params.lr") != nullptr;
    const auto text = auto_value(
        *given.key, {values_, has_rate ? config_.optimizer.learning_rate : values_.learning_rate});
    if (!text && passes_unread(*given.key)) {
      given.usable = true;
      given.shown = "auto";
      return;
    }
    if (!text && circumstances_.purpose == Purpose::check && is_left_to_program(*given.key)) {
      given.source = Source::automatic;
      given.usable = true;
      given.shown = not_set;
      config_.notices.push_back(given.path +
                                ": \"auto\" is open; the training program fills in its own number");
      return;
    }
    if (!text) {
      problems_.add(given.node->position,
                    given.path +
                        ": \"auto\" cannot be resolved here: this value must be given; "
                        "allowed: " +
                        allowed_values(*given.key));
      return;
    }
    given.source = Source::automatic;
    if (text->empty()) {
      given.usable = given.key->of != nullptr;
      if (given.usable) given.shown = show_value(*given.key, given.name, config_);
      return;
    }
    Document value = parse_value(*text);
    value.root.position = given.node->position;
    Outcome outcome = set_value(*given.key, given.name, value.root, config_);
    given.usable = outcome.problem.empty();
    given.shown = std::move(outcome.shown);
    if (!given.usable)
      problems_.add(
          given.node->position,
          given.path + ": \"auto\" stands for a value that is not allowed: " + outcome.problem);
  }

  // PyTorch's AdamW has a default weight decay of 0.01; all others have 0.
  void set_torch_decay() {
    const ParsedValue* torch = find(given_, "optimizer.params.torch_adam");
    if (torch == nullptr || is_false(torch->shown)) return;
    const optim::OptimizerOptions& optimizer = config_.optimizer;
    const bool decoupled = lower_case(optimizer.type) == "adamw" || optimizer.adam_w_mode;
    if (decoupled && !optim::has_auxiliary_rule(optimizer) &&
        find(given_, "optimizer.params.weight_decay") == nullptr)
      config_.optimizer.weight_decay = 0.01;
  }

  bool failed(std::string_view path) const {
    const ParsedValue* given = find(given_, path);
    return given != nullptr && !given->usable;
  }

  bool is_cosine_rate(const Key& key) const {
    return config_.scheduler.type == "WarmupCosineLR" &&
           std::ranges::find(cosine_rates, key.path) != cosine_rates.end();
  }

  // Like DeepSpeed, refuses parameters of another optimizer or schedule.
  void check_parameters() {
    for (ParsedValue& given : given_) {
      const Key& key = *given.key;
      if (key.belongs_to.empty()) continue;
      const std::string section = key.path.substr(0, key.path.find('.'));
      const std::string& type = detail::type_for(key.path, config_);
      const bool type_failed = failed(section + ".type");
      if (!type_failed && (belongs_to(key, type) || is_cosine_rate(key))) continue;
      given.usable = false;
      if (type_failed) continue;
      problems_.add(given.node->position,
                    given.path + ": " +
                        (type.empty() ? "no " + section + ".type is given that has it"
                                      : section + " " + type + " has no such parameter") +
                        "; it belongs to " + owners_of(key) +
                        (type == "Adafactor" && key.path == "optimizer.params.eps"
                             ? "; torch's eps[0] and eps[1] are eps1 and eps2 here"
                             : ""));
    }
  }

  void check_required() {
    const ParsedValue* type = find(given_, "scheduler.type");
    if (type == nullptr || !type->usable) return;
    for (const Key& key : keys())
      if (key.required && belongs_to(key, config_.scheduler.type) &&
          find(given_, key.path) == nullptr)
        problems_.add(type->node->position, key.path + ": must be given for " +
                                                config_.scheduler.type +
                                                "; allowed: " + allowed_values(key));
  }

  // "auto" leaves a key open. Other values are refused, or have no effect.
  void leave_batch_to_elasticity() {
    BatchOptions& batch = config_.batch;
    std::string ignored;
    for (const auto& [path, member] : batch_keys) {
      const ParsedValue* given = find(given_, path);
      const bool open = given == nullptr || given->source == Source::automatic;
      if (open) batch.*member = 0;
      if (batch.*member != 0) ignored += (ignored.empty() ? "" : ", ") + given->path;
    }
    try {
      detail::check_elasticity(batch);
    } catch (const ConfigError& error) {
      const std::string problem = error.what();
      const ParsedValue* key = find(given_, problem.substr(0, problem.find(':')));
      if (key == nullptr) key = find(given_, "elasticity.enabled");
      if (key->usable) problems_.add(key->node->position, problem);
    }
    if (!ignored.empty() && batch.elasticity.ignore_non_elastic_batch_info)
      config_.notices.push_back(ignored + ": no effect: elasticity chooses the batch");
    batch = {.elasticity = batch.elasticity};
  }

  // Refuses a batch that fits no number of ranks; resolve_batch() checks the remaining rules.
  void check_batch() {
    const BatchOptions& batch = config_.batch;
    const ParsedValue* total = find(given_, "train_batch_size");
    if (total == nullptr || batch.train_batch_size == 0) return;
    const std::int64_t micro = std::max<std::int64_t>(batch.train_micro_batch_size_per_gpu, 1);
    const std::int64_t steps = std::max<std::int64_t>(batch.gradient_accumulation_steps, 1);
    std::int64_t share = 0;
    const bool overflow = __builtin_mul_overflow(micro, steps, &share);
    if (!overflow && batch.train_batch_size % share == 0) return;
    std::string of;
    if (batch.train_micro_batch_size_per_gpu != 0)
      of = "train_micro_batch_size_per_gpu " + std::to_string(micro);
    if (batch.gradient_accumulation_steps != 0)
      of += (of.empty() ? "" : " x ") + ("gradient_accumulation_steps " + std::to_string(steps));
    problems_.add(total->node->position,
                  "train_batch_size: " + std::to_string(batch.train_batch_size) +
                      " fits no number of ranks; allowed: multiples of " + of);
  }

  void check_pipeline() {
    const ParsedValue* key = find(given_, "zero_core.pipeline.chunks");
    if (key == nullptr) key = find(given_, "zero_core.pipeline.schedule");
    if (key == nullptr || !key->usable || config_.pipeline.stages == 1) return;
    const std::string problem = detail::chunks_problem(config_.pipeline);
    if (!problem.empty()) problems_.add(key->node->position, problem);
  }

  void check_nesterov() {
    const optim::OptimizerOptions& optimizer = config_.optimizer;
    const ParsedValue* nesterov = find(given_, "optimizer.params.nesterov");
    if (nesterov == nullptr || !optimizer.nesterov) return;
    if (optimizer.momentum > 0 && optimizer.dampening == 0) return;
    problems_.add(nesterov->node->position,
                  nesterov->path + ": needs momentum greater than 0 and dampening 0");
  }

  bool cycles_betas() const {
    return config_.scheduler.type == "OneCycle" && config_.scheduler.cycle_momentum &&
           !optim::has_auxiliary_rule(config_.optimizer) && optim::has_betas(config_.optimizer);
  }

  // Refuses a training run that is known to be so long that the momentum reaches 1.
  void check_momentum() {
    const ParsedValue* rate = find(given_, "scheduler.params.decay_mom_rate");
    if (rate == nullptr || !rate->usable || !cycles_betas()) return;
    const auto step = optim::first_step_without_momentum(config_.scheduler);
    if (!step || (values_.total_steps && *values_.total_steps < *step)) return;
    const std::string text = rate->path + ": raises the momentum to 1 at step " +
                             std::to_string(*step) + ", where averages diverge; ";
    if (!values_.total_steps)
      config_.notices.push_back(text + "a run of this many steps ends there with an error");
    else
      problems_.add(rate->node->position,
                    text + "allowed: a rate that keeps it below 1 to the end of training, or 0");
  }

  void note_warmup() {
    const optim::SchedulerOptions& schedule = config_.scheduler;
    const ParsedValue* total = find(given_, "scheduler.params.total_num_steps");
    if (total == nullptr || !total->usable || schedule.total_num_steps >= schedule.warmup_num_steps)
      return;
    config_.notices.push_back(
        total->path + ": " + std::to_string(schedule.total_num_steps) +
        " is less than warmup_num_steps, " + std::to_string(schedule.warmup_num_steps) +
        ": the rate rises for all of the warmup, and then falls to its end at once");
  }

  void check_precision() {
    const ParsedValue* bf16 = find(given_, "bf16.enabled");
    if (bf16 != nullptr && config_.fp16_enabled && config_.bf16_enabled)
      problems_.add(bf16->node->position,
                    bf16->path + ": excludes fp16.enabled; set one of them to false");
    const ParsedValue* states = find(given_, "bf16.bf16_optimizer_states");
    if (states != nullptr && config_.bf16_optimizer_states &&
        !config_.bf16_master_weights_and_grads)
      problems_.add(states->node->position,
                    states->path + ": needs bf16.bf16_master_weights_and_grads; set that to true");
    check_buffers();
    if (!config_.fp16_enabled) return;
    try {
      const optim::LossScaler checked(config_.loss_scale);
    } catch (const ConfigError& error) {
      const std::string problem = error.what();
      const ParsedValue* key = find(given_, problem.substr(0, problem.find(':')));
      if (key != nullptr && key->usable) problems_.add(key->node->position, problem);
    }
  }

  void check_buffers() {
    const ParsedValue* dtype = find(given_, "data_types.buffer_dtype");
    if (dtype == nullptr || !dtype->usable || dtype->shown == "null") return;
    const ParsedValue* kept = find(given_, "data_types.keep_in_fp32_modules");
    if (kept != nullptr && !kept->node->members.empty())
      problems_.add(kept->node->position,
                    kept->path +
                        ": excludes data_types.buffer_dtype, which casts all buffers; "
                        "keep one of them");
  }

  // MiCS is DeepSpeed's name for shard groups.
  void read_shard_group() {
    const std::int64_t mics = config_.zero_optimization.mics_shard_size;
    if (mics <= 0) return;
    std::optional<std::int64_t>& size = config_.zero_core.shard_group_size;
    const ParsedValue* both = find(given_, "zero_core.shard_group_size");
    if (both != nullptr && size != mics)
      problems_.add(both->node->position, both->path + ": zero_optimization.mics_shard_size is " +
                                              std::to_string(mics) +
                                              ", which means the same; give one of them");
    size = mics;
  }

  // Notes optimizer settings with an effect that differs from the file's wording or from DeepSpeed.
  void note_optimizer() {
    const optim::OptimizerOptions& optimizer = config_.optimizer;
    const bool muon = optim::has_auxiliary_rule(optimizer);
    const bool cycles = config_.scheduler.type == "OneCycle" && config_.scheduler.cycle_momentum;
    const ParsedValue* betas = find(given_, "optimizer.params.betas");
    if (cycles_betas() && betas != nullptr && betas->usable && optimizer.beta2 != cycled_beta2)
      config_.notices.push_back(
          betas->path +
          ": has no effect: scheduler.params.cycle_momentum moves the first beta and "
          "sets the second to 0.99, as in DeepSpeed; false keeps them");
    if (cycles && !cycles_betas())
      config_.notices.push_back(
          "scheduler.params.cycle_momentum: switched off, as in DeepSpeed, as " + optimizer.type +
          " has no betas for schedules");
    const bool sharded =
        detail::strategy_for(config_.zero_optimization, config_.zero_core).optimizer ==
        detail::Placement::shard;
    if (muon && config_.gradient_clipping > 0 && sharded)
      config_.notices.push_back(
          "gradient_clipping: limits the gradients before Muon makes them orthogonal; in DeepSpeed "
          "so only at stage 0, at stages 1 to 3 it limits the orthogonal updates");
  }

  // Records the positions of the batch keys in the file, for later messages.
  void place_batch() {
    for (const auto& [path, value] :
         {std::pair{"train_batch_size", config_.batch.train_batch_size},
          {"train_micro_batch_size_per_gpu", config_.batch.train_micro_batch_size_per_gpu},
          {"elasticity.enabled", std::int64_t{config_.batch.elasticity.enabled}}}) {
      const ParsedValue* given = find(given_, path);
      if (given == nullptr || value == 0) continue;
      config_.batch.place = problems_.place(given->node->position);
      return;
    }
  }

  // A file may leave the batch to the program, by "auto" or by giving none.
  void complete_batch() {
    BatchOptions& batch = config_.batch;
    if (batch.given()) return;
    bool automatic = false;
    for (const char* path : {"train_batch_size", "train_micro_batch_size_per_gpu"}) {
      if (failed(path)) return;
      const ParsedValue* given = find(given_, path);
      automatic = automatic || (given != nullptr && given->source == Source::automatic);
    }
    batch.train_micro_batch_size_per_gpu =
        std::max<std::int64_t>(1, values_.micro_batch_size.value_or(1));
    const std::string why = automatic ? "as the file leaves it to the program, which names none"
                            : values_.micro_batch_size
                                ? "as the program has it, and the file names no batch"
                                : "as neither the file nor the program names a batch";
    config_.notices.push_back("train_micro_batch_size_per_gpu: " +
                              std::to_string(batch.train_micro_batch_size_per_gpu) + ", " + why);
  }

  // With zero_core.rank_independent the accumulation follows from the number of ranks, so a
  // program's value for "auto" does not decide.
  void leave_accumulation_open() {
    const ParsedValue* given = find(given_, "gradient_accumulation_steps");
    if (config_.zero_core.rank_independent && given != nullptr &&
        given->source == Source::automatic)
      config_.batch.gradient_accumulation_steps = 0;
  }

  // WarmupCosineLR takes shares of the optimizer's rate; converts rates that the file gives
  // instead.
  void read_cosine_rates() {
    if (config_.scheduler.type != "WarmupCosineLR") return;
    const double rate = config_.optimizer.learning_rate;
    const ParsedValue* low = find(given_, cosine_rates[0]);
    const ParsedValue* high = find(given_, cosine_rates[1]);
    if (high != nullptr && high->usable && config_.scheduler.warmup_max_lr.value_or(rate) != rate)
      problems_.add(high->node->position,
                    high->path + ": WarmupCosineLR rises to optimizer.params.lr; write it there");
    if (low != nullptr && low->usable) {
      const double ratio = rate > 0 ? config_.scheduler.warmup_min_lr / rate : 0;
      if (find(given_, "scheduler.params.warmup_min_ratio") != nullptr)
        problems_.add(low->node->position,
                      low->path + ": is another form of warmup_min_ratio, which is given too");
      config_.scheduler.warmup_min_ratio = ratio;
    }
    for (const ParsedValue* given : {low, high})
      if (given != nullptr && given->usable)
        config_.notices.push_back(given->path +
                                  ": read as a share of optimizer.params.lr, which WarmupCosineLR "
                                  "scales; DeepSpeed refuses it");
  }

  std::vector<ParsedValue> given_;
  const TrainerValues& values_;
  const Circumstances circumstances_;
  ProblemList& problems_;
  Config config_;
  std::string strings_;  // paths of numbers that are written as strings
};

}  // namespace

Resolution resolve(std::vector<ParsedValue> given, const TrainerValues& values,
                   const Circumstances& circumstances, ProblemList& problems) {
  return Resolver(std::move(given), values, circumstances, problems).run();
}

}  // namespace zero::config_schemas

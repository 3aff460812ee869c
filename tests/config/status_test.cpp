// The treatment of keys without effect, of old names, and of "auto".
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/config/config_support.h"

using namespace zero;
using zero::tests::has;
using zero::tests::parse;
using zero::tests::refusal;

namespace {

std::string notices_of(const Config& config) {
  std::string result;
  for (const std::string& notice : config.notices) result += notice + "\n";
  return result;
}

std::string notices(std::string_view text, const TrainerValues& values = {}) {
  return notices_of(parse(text, {}, values));
}

// Adds a batch, since otherwise a notice reports that there is none.
std::string with_batch(const std::string& members) {
  return "{\"train_batch_size\": 8, " + members + "}";
}

}  // namespace

TEST_CASE("an unsupported key is refused only if its value enables it") {
  const struct {
    const char *refused, *reason, *fine;
  } cases[] = {
      {R"("fp16": {"enabled": true, "min_loss_scale": 0})",
       "fp16.min_loss_scale: expected more than 0",
       R"("fp16": {"enabled": true, "loss_scale": 128, "min_loss_scale": 0})"},
      {R"("fp16": {"enabled": "True", "loss_scale_window": 0})",
       "fp16.loss_scale_window: expected more than 0", R"("fp16": {"loss_scale_window": 0})"},
      {R"("fp16": {"enabled": true, "initial_scale_power": 128})", "an integer from 0 to 127",
       R"("fp16": {"enabled": true, "initial_scale_power": 32})"},
      {R"("fp16": {"enabled": true}, "bf16": {"enabled": true})",
       "bf16.enabled: excludes fp16.enabled", R"("fp16": {"enabled": true}, "bf16": null)"},
      {R"("communication_data_type": "fp8")", "communication_data_type: \"fp8\" is not known",
       R"("communication_data_type": "BF16")"},
      {R"("data_types": {"grad_accum_dtype": "int8"})", "added up in fp32, bf16 or fp16",
       R"("data_types": {"grad_accum_dtype": "torch.float32"}, "bf16": {"enabled": true})"},
      {R"("data_types": {"param_dtype": "bf16"})", "is refused: must agree with fp16.enabled",
       R"("data_types": {"param_dtype": "half"}, "fp16": {"enabled": true})"},
      {R"("data_types": {"param_dtype": "fp32"}, "bf16": {"enabled": true})",
       "is refused: must agree", R"("data_types": {"param_dtype": "fp32"})"},
      {R"("data_types": {"param_dtype": "fp16"})", "is refused: must agree",
       R"("data_types": {"param_dtype": "torch.float32"})"},
      {R"("bf16": {"enabled": true, "bf16_optimizer_states": true})",
       "bf16.bf16_optimizer_states: needs bf16.bf16_master_weights_and_grads",
       R"("bf16": {"enabled": true, "bf16_optimizer_states": true,
                   "bf16_master_weights_and_grads": true})"},
      {R"("gradient_allreduce_op": "max")", "\"max\" is not known",
       R"("gradient_allreduce_op": "SUM")"},
      {R"("optimizer": {"type": "Adam", "params": {"amsgrad": true}})", "amsgrad: true is refused",
       R"("optimizer": {"type": "Adam", "params": {"amsgrad": false}})"},
      {R"("optimizer": {"type": "AdamW", "params": {"max_grad_norm": 0.5}})",
       "it is written gradient_clipping", R"("gradient_clipping": 1.0)"},
      // Refused because ranks that share work change the batch.
      {R"("tensor_parallel": {"autotp_size": 4})",
       "tensor_parallel.autotp_size: 4 is refused: ranks that share work would count as one",
       R"("tensor_parallel": {"autotp_size": 1})"},
      {R"("sequence_parallel_size": 2)", "sequence_parallel_size: 2 is refused: ranks that share",
       R"("sequence_parallel_size": 1)"},
      {R"("data_types": {"buffer_dtype": "bf16", "keep_in_fp32_modules": ["e_score"]})",
       "keep_in_fp32_modules: excludes data_types.buffer_dtype",
       R"("data_types": {"buffer_dtype": null, "keep_in_fp32_modules": "auto"})"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.refused);
    const std::string message = refusal(with_batch(c.refused));
    CHECK(has(message, c.reason));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(notices(with_batch(c.fine)).empty());
  }
}

TEST_CASE("a key with an equivalent alternative is a notice that names it") {
  const struct {
    const char *members, *notice, *quiet;
  } cases[] = {
      {R"("wandb": {"enabled": true, "project": "x", "team": null})",
       "wandb.enabled true, wandb.project \"x\": no effect here: nothing is sent to a service; "
       "tensorboard and csv_monitor write records to files",
       R"("wandb": {"enabled": false, "project": "x"}, "tensorboard": "auto")"},
      {R"("comet": {"enabled": true, "samples_log_interval": 10})",
       "comet.enabled true, comet.samples_log_interval 10: no effect here: nothing is sent",
       R"("comet": "auto")"},
      {R"("zero_optimization": {"zenflow": {"topk_ratio": 0.1}})",
       "zenflow: no effect here: every step applies the whole gradient",
       R"("zero_optimization": {"zenflow": null})"},
      {R"("datastates_ckpt": null)", "checkpoint.writer.decoupled", R"("datastates_ckpt": false)"},
      {R"("data_types": {"keep_in_fp32_modules": ["norm"]})", "keep their dtype in Python anyway",
       R"("data_types": {"keep_in_fp32_modules": "auto"})"},
      {R"("hybrid_engine": {"enabled": true})", "generates text", R"("hybrid_engine": {})"},
      {R"("zero_optimization": {"compute_grad_norm": false})", "the norm is always taken",
       R"("zero_optimization": {"compute_grad_norm": true})"},
      {R"("fp16": {"opt_level": "O2"})", "DeepSpeed 0.19 refuses the key", R"("fp16": {})"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.members);
    CHECK(has(notices(with_batch(c.members)), c.notice));
    CHECK(notices(with_batch(c.quiet)).empty());
  }
}

TEST_CASE("optimizers that are known but refused: the reason, and no complaint about parameters") {
  const auto type = [](const char* name) {
    return refusal("{\"optimizer\": {\"type\": \"" + std::string(name) +
                   R"(", "params": {"lr": 1, "max_coeff": 1, "freeze_step": 3, "muon_lr": 1}}})");
  };
  for (const char* name : {"OneBitAdam", "onebitadam", "ZeroOneAdam", "OneBitLamb"})
    CHECK(has(type(name), "DeepSpeed removed in 0.19.7"));
  for (const char* name : {"MuAdam", "musgd"}) CHECK(has(type(name), "package mup"));
  CHECK(type("OneBitLamb").find('\n') == std::string::npos);
  CHECK(has(refusal(R"({"optimizer": {"type": "Muon", "params": {"per_head_muon": true}}})"),
            "the heads of a model are not known here"));
}

TEST_CASE("every optimizer has DeepSpeed's defaults, and only its own parameters") {
  const auto optimizer = [](const char* type, const char* params) {
    return parse("{\"optimizer\": {\"type\": \"" + std::string(type) + R"(", "params": {)" +
                 params + "}}}")
        .optimizer;
  };
  const auto adagrad = optimizer("adagrad", R"("lr_decay": 0.5, "initial_accumulator_value": 2)");
  CHECK(adagrad.learning_rate == 1e-2);
  CHECK(adagrad.epsilon == 1e-10);
  CHECK(adagrad.lr_decay == 0.5);
  CHECK(adagrad.initial_accumulator_value == 2);
  const auto lamb = optimizer("LAMB", R"("max_coeff": 5, "eps_inside_sqrt": true)");
  CHECK(lamb.type == "Lamb");
  CHECK(lamb.epsilon == 1e-8);
  CHECK(lamb.max_coeff == 5);
  CHECK(lamb.min_coeff == 0.01);
  CHECK(lamb.eps_inside_sqrt);
  CHECK(optimizer("Lion", R"("betas": [0.95, 0.98])").beta1 == 0.95);
  CHECK(optimizer("Lion", "").beta2 == 0.999);
  CHECK(optimizer("Lion", "").learning_rate == 1e-3);
  for (const auto& [type, params] : {std::pair{"Lion", R"("eps": 1)"},
                                     {"Adagrad", R"("betas": [0, 0])"},
                                     {"SGD", R"("max_coeff": 1)"},
                                     {"Lamb", R"("momentum": 1)"},
                                     {"AdamW", R"("ns_method": "gram")"}})
    CHECK(has(refusal("{\"optimizer\": {\"type\": \"" + std::string(type) + R"(", "params": {)" +
                      params + "}}}"),
              "has no such parameter"));
}

TEST_CASE("Muon's two rates follow lr, each unless it is given itself") {
  const auto rates = [](const char* params) {
    const auto options =
        parse("{\"optimizer\": {\"type\": \"Muon\", \"params\": {" + std::string(params) + "}}}")
            .optimizer;
    return std::pair(optim::options_of_rule(options, false).learning_rate,
                     optim::options_of_rule(options, true).learning_rate);
  };
  CHECK(rates("") == std::pair(0.02, 3e-4));
  CHECK(rates(R"("lr": 0.5)") == std::pair(0.5, 0.5));
  CHECK(rates(R"("lr": 0.5, "adam_lr": 0.25)") == std::pair(0.5, 0.25));
  CHECK(rates(R"("muon_lr": 0.5)") == std::pair(0.5, 3e-4));
  CHECK(rates(R"("muon_lr": 0.5, "lr": 0.125)") == std::pair(0.5, 0.125));
  const auto options = parse(R"({"optimizer": {"type": "muon"}})").optimizer;
  CHECK(options.momentum == 0.95);
  CHECK(options.beta2 == 0.95);
  CHECK(options.epsilon == 1e-10);
  CHECK(options.ns_method == "gram");
  CHECK(has(
      notices(with_batch(R"("optimizer": {"type": "Muon"}, "zero_optimization": {"stage": 2})")),
      "gradient_clipping: limits the gradients before Muon"));
}

TEST_CASE("groups may have a rate, betas and more of their own") {
  const auto group = [](const char* values) {
    return parse(R"({"zero_core": {"param_groups": {"g": {)" + std::string(values) + "}}}}")
        .zero_core.param_groups.at("g");
  };
  CHECK(group(R"("lr": 0.5)").lr == 0.5);
  CHECK(group(R"("betas": [0.5, 0.25])").betas == std::pair(0.5, 0.25));
  CHECK(group(R"("eps": 0.5)").eps == 0.5);
  CHECK(group(R"("momentum": 0.5)").momentum == 0.5);
  CHECK_FALSE(group(R"("lr_scale": 0.5)").betas.has_value());
}

TEST_CASE(
    "keys without effect are listed once, by reason, unless they request the existing behavior") {
  CHECK(notices(with_batch(R"("zero_optimization": {"overlap_comm": true,
      "contiguous_gradients": true, "reduce_scatter": true, "allgather_partitions": true,
      "stage3_gather_16bit_weights_on_model_save": true, "sub_group_size": 1e9},
      "wall_clock_breakdown": false, "zero_allow_untested_optimizer": false,
      "activation_checkpointing": {"partition_activations": false}, "aio": null)"))
            .empty());
  CHECK(notices(with_batch(R"("zero_optimization": {"overlap_comm": false})")) ==
        "zero_optimization.overlap_comm false: no effect here: communication always overlaps with "
        "computation\n");
  const std::string text = notices(with_batch(
      R"("timers": {"throughput": {"synchronized": false}}, "pipeline": {"seed_layers": true},
         "log_level": "info", "flops_profiler": {"enabled": true, "detailed": false})"));
  CHECK(has(text, "log_level \"info\": no effect here: diagnostic output"));
  CHECK(
      has(text, "flops_profiler.detailed false: no effect here: the profile is of the whole step"));
  CHECK(has(text, "pipeline.seed_layers true: no effect here: PipelineModule has arguments for it"));
  CHECK(std::ranges::count(text, '\n') == 3);
  CHECK(has(notices(with_batch(R"("aio": {"use_gds": true})")), "aio.use_gds true: no effect"));
}

TEST_CASE("offload_param acts at stage 3 only, as in DeepSpeed") {
  const auto at_stage = [](const char* stage) {
    return with_batch("\"zero_optimization\": {\"stage\": " + std::string(stage) +
                      ", \"offload_param\": {\"device\": \"cpu\"}}");
  };
  CHECK(
      has(notices(at_stage("2")),
          "zero_optimization.offload_param.device \"cpu\": no effect here: acts at stage 3 only"));
  CHECK(notices(at_stage("3")).empty());
}

TEST_CASE("removed blocks: refused if they are enabled, else listed") {
  const char* on[] = {
      R"("amp": {"enabled": true, "opt_level": "O1"})",
      R"("compression_training": {"weight_quantization": {"shared_parameters": {"enabled": true}}})",
      R"("sparse_attention": {"mode": "fixed"})",
      R"("nebula": {"enabled": true})",
      R"("sparse_gradients": true)",
  };
  for (const char* text : on) {
    CAPTURE(text);
    CHECK(has(refusal(with_batch(text)), "is refused: DeepSpeed removed"));
  }
  const char* off[] = {
      R"("amp": {"enabled": "auto", "opt_level": "auto"})",
      R"("compression_training": {"weight_quantization": {"shared_parameters": {"enabled": false}}})",
      R"("nebula": {"enabled": false})",
      R"("quantize_training": {"quantize_groups": 1})",
      R"("curriculum_learning": {})",
  };
  for (const char* text : off) {
    CAPTURE(text);
    CHECK(has(notices(with_batch(text)), "switched off, and refused by DeepSpeed 0.19"));
  }
  const char* nothing[] = {
      R"("sparse_gradients": false)",
      R"("zero_optimization": {"cpu-offload": false})",
      R"("optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1}})",
  };
  for (const char* text : nothing) {
    CAPTURE(text);
    CHECK(has(notices(with_batch(text)), "asks for nothing here, and DeepSpeed 0.19 refuses it"));
  }
  refusal(with_batch(R"("zero_optimization": {"cpu-offload": true})"));
  refusal(with_batch(R"("optimizer": {"type": "AdamW", "params": {"max_grad_norm": 2}})"));
}

TEST_CASE("old names are read as today's, with one notice") {
  const Config config = parse(with_batch(R"("zero_optimization": true, "allgather_size": 1e6)"));
  CHECK(config.zero_optimization.stage == 1);
  CHECK(config.zero_optimization.allgather_bucket_size == 1'000'000);
  CHECK(parse(with_batch(R"("zero_optimization": false)")).zero_optimization.stage == 0);
  CHECK(parse(R"({"zero_optimization": true})", {{"zero_optimization.stage", "2"}})
            .zero_optimization.stage == 2);

  CHECK(notices(with_batch(R"("bfloat16": {"enabled": true})")) ==
        "bfloat16: an old form of bf16, and read as such\n");
  CHECK(parse(with_batch(R"("bfloat16": {"enabled": true}, "bf16": null)")).bf16_enabled);
  CHECK(has(refusal(R"({"bf16": {}, "bfloat16": {}})"), "is the old name of bf16, which is given"));

  const auto in_zero = [](const char* members) {
    return with_batch("\"zero_optimization\": {" + std::string(members) + "}");
  };
  CHECK(notices(in_zero(R"("cpu_offload": false)")) ==
        "zero_optimization.cpu_offload: an old form of zero_optimization.offload_optimizer.device, "
        "and read as such\n");
  CHECK(parse(in_zero(R"("cpu_offload": true)")).zero_optimization.offload_optimizer.device ==
        zero::OffloadDevice::cpu);
  CHECK(has(refusal(in_zero(R"("cpu_offload": false, "offload_optimizer": {"device": "none"})")),
            "cpu_offload: is an old form of offload_optimizer, which is given too"));
  CHECK(notices(in_zero(R"("cpu_offload": "auto", "offload_optimizer": {"device": "none"})"))
            .empty());
  CHECK(has(refusal(in_zero(R"("cpu_offload": 7)")), "7 is neither true nor false"));
  CHECK(parse(in_zero(R"("cpu_offload": null)")).zero_optimization.offload_optimizer.device ==
        zero::OffloadDevice::none);
  CHECK(notices(in_zero(R"("leaf_module": "auto")")).empty());
  CHECK(has(notices(in_zero(R"("stage3_gather_fp16_weights_on_model_save": true)")),
            "stage3_gather_fp16_weights_on_model_save: an old form of"));
  CHECK(has(refusal(in_zero(R"("stage3_gather_fp16_weights_on_model_save": false,
                               "gather_16bit_weights_on_model_save": true)")),
            "which is given too"));
}

TEST_CASE("auto: the program's values, else the Trainer's") {
  const char* text = R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": "auto",
    "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
      "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
      "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
      "stage3_max_live_parameters": "auto", "overlap_comm": "auto"}})";
  CHECK(has(refusal(text), "total_num_steps: \"auto\" cannot be resolved here"));
  TrainerValues values;
  values.total_steps = 500;
  values.micro_batch_size = 1;
  Config config = parse(text, {}, values);
  CHECK(config.batch.train_micro_batch_size_per_gpu == 1);
  CHECK(config.gradient_clipping == 1.0);
  CHECK(config.optimizer.learning_rate == 5e-5);
  CHECK(config.scheduler.warmup_max_lr == 5e-5);
  CHECK(config.scheduler.warmup_num_steps == 1);
  CHECK(config.scheduler.total_num_steps == 500);
  CHECK_FALSE(config.bf16_enabled);
  CHECK(config.zero_optimization.reduce_bucket_size == 500'000'000);
  CHECK_FALSE(config.zero_optimization.prefetch_bucket_size.has_value());

  values.micro_batch_size = 4;
  values.accumulation_steps = 2;
  values.hidden_size = 100;
  values.warmup_steps = 20;
  values.learning_rate = 3e-4;
  values.weight_decay = 0.1;
  values.beta2 = 0.95;
  values.bf16 = true;
  config = parse(text, {}, values);
  CHECK(config.batch.train_micro_batch_size_per_gpu == 4);
  CHECK(config.batch.gradient_accumulation_steps == 2);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.scheduler.warmup_max_lr == 3e-4);
  CHECK(config.scheduler.warmup_num_steps == 20);
  CHECK(config.bf16_enabled);
  CHECK(config.zero_optimization.reduce_bucket_size == 10'000);
  CHECK(config.zero_optimization.prefetch_bucket_size == 9000);
  CHECK(config.zero_optimization.param_persistence_threshold == 1000);

  values.fp16 = true;
  CHECK_THROWS_WITH_AS(parse(text, {}, values), doctest::Contains("excludes fp16.enabled"),
                       ConfigError);
}

TEST_CASE("auto: the schedule follows the optimizer's rate; elsewhere it is refused") {
  CHECK(parse(R"({"optimizer": {"params": {"lr": 0.25}}, "scheduler": {"type": "WarmupLR",
                  "params": {"warmup_max_lr": "auto"}}})")
            .scheduler.warmup_max_lr == 0.25);
  for (const char* text : {R"({"seed": "auto"})", R"({"optimizer": {"type": "auto"}})",
                           R"({"scheduler": {"type": "auto"}})",
                           R"({"optimizer": {"type": "SGD", "params": {"momentum": "auto"}}})"})
    CHECK(has(refusal(text), "allowed: "));
}

TEST_CASE("a file without a batch takes the program's, else one sample, with a notice") {
  zero::TrainerValues three;
  three.micro_batch_size = 3;
  const auto load = [](const char* text, const zero::TrainerValues& values) {
    const Config config = zero::config_schemas::parse_config(text, "ds.json", {}, values);
    CHECK_FALSE(has(describe(config), "notice"));
    return std::pair(config.batch.train_micro_batch_size_per_gpu, notices_of(config));
  };
  const char* automatic =
      R"({"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"})";
  CHECK(load("{}", three).first == 3);
  CHECK(has(load("{}", three).second, "per_gpu: 3, as the program has it, and the file names no"));
  CHECK(load("{}", {}).first == 1);
  CHECK(
      has(load("{}", {}).second, "per_gpu: 1, as neither the file nor the program names a batch"));
  CHECK(load(automatic, three) == std::pair<std::int64_t, std::string>(3, ""));
  CHECK(load(automatic, {}).first == 1);
  CHECK(has(load(automatic, {}).second, "per_gpu: 1, as the file leaves it to the program"));
  CHECK(load(R"({"gradient_accumulation_steps": 4})", {}).first == 1);
  CHECK(load(R"({"train_batch_size": 8})", three) == std::pair<std::int64_t, std::string>(0, ""));
}

TEST_CASE("the defaults of DeepSpeed 0.14") {
  const auto with = [](const std::string& defaults, const std::string& more) {
    return parse("{\"zero_core\": {\"deepspeed_defaults\": " + defaults + "}" + more + "}");
  };
  CHECK(with("\"0.14\"", "").gradient_clipping == 0.0);
  CHECK(with("0.14", "").gradient_clipping == 0.0);
  CHECK(with("\"0.14\"", ", \"gradient_clipping\": 2").gradient_clipping == 2.0);
  CHECK(with("\"0.19\"", "").gradient_clipping == 1.0);
  const std::string schedule = ", \"scheduler\": {\"type\": \"WarmupLR\"}";
  CHECK(with("\"0.14\"", schedule).scheduler.warmup_max_lr == 0.001);
  CHECK_FALSE(with("\"0.19\"", schedule).scheduler.warmup_max_lr.has_value());
  CHECK(has(describe(with("\"0.14\"", "")), "zero_core.deepspeed_defaults = 0.14\n"));
  CHECK(has(refusal(R"({"zero_core": {"deepspeed_defaults": "0.16"}})"), "one of 0.19, 0.14"));
}

TEST_CASE("torch_adam brings PyTorch's weight decay along") {
  const auto decay = [](const char* type, const char* params) {
    return parse("{\"optimizer\": {\"type\": \"" + std::string(type) + "\", \"params\": {" +
                 params + "}}}")
        .optimizer.weight_decay;
  };
  CHECK(decay("AdamW", "\"torch_adam\": true") == 0.01);
  CHECK(decay("Adam", "\"torch_adam\": \"torch_impl\"") == 0.01);
  CHECK(decay("Adam", "\"torch_adam\": true, \"adam_w_mode\": false") == 0.0);
  CHECK(decay("AdamW", "\"torch_adam\": true, \"weight_decay\": 0.5") == 0.5);
  CHECK(decay("AdamW", "\"torch_adam\": false") == 0.0);
  CHECK(decay("AdamW", "\"lr\": 1") == 0.0);
}

TEST_CASE("OneCycle and LRRangeTest reach their members") {
  const auto cycle = [](const char* optimizer, const char* more) {
    return "{\"optimizer\": {\"type\": \"" + std::string(optimizer) +
           R"("}, "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4,
           "cycle_max_lr": 1e-3, "cycle_first_step_size": 5, "decay_lr_rate": 0.5)" +
           more + "}}}";
  };
  CHECK(parse(cycle("AdamW", "")).scheduler.cycle_momentum);
  CHECK(parse(cycle("AdamW", ", \"cycle_min_mom\": 0.5")).scheduler.cycle_min_mom == 0.5);
  CHECK(parse(cycle("AdamW", ", \"cycle_max_mom\": 0.5")).scheduler.cycle_max_mom == 0.5);
  CHECK(parse(cycle("AdamW", ", \"decay_mom_rate\": 0.5")).scheduler.decay_mom_rate == 0.5);
  CHECK(has(notices(cycle("SGD", "")), "cycle_momentum: switched off, as in DeepSpeed, as SGD"));
  const Config config = parse(cycle("AdamW", ", \"cycle_momentum\": false"));
  CHECK(config.scheduler.cycle_max_lr == 1e-3);
  CHECK(config.scheduler.cycle_first_step_size == 5);
  CHECK_FALSE(config.scheduler.cycle_second_step_size.has_value());
  parse(cycle("SGD", ""));
  CHECK(has(refusal(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_momentum": false}}})"),
            "scheduler.params.cycle_max_lr: must be given for OneCycle"));
  CHECK(parse(R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_step_size": 7}}})")
            .scheduler.lr_range_test_step_size == 7);
}

namespace {

std::string one_cycle(const std::string& params, const std::string& more = "") {
  return with_batch(R"("scheduler": {"type": "OneCycle", "params": {"cycle_first_step_size": 2,
                       "cycle_min_lr": 0, "cycle_max_lr": 1)" +
                    params + "}}" + more);
}

}  // namespace

TEST_CASE("rates and momenta may be lists of one, as DeepSpeed takes them") {
  const auto scheduler =
      parse(with_batch(R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": [1e-4],
                         "cycle_max_lr": ["1e-2"], "cycle_min_mom": [0.5], "cycle_max_mom": [0.6]}})"))
          .scheduler;
  CHECK(scheduler.cycle_min_lr == 1e-4);
  CHECK(scheduler.cycle_max_lr == 1e-2);
  CHECK(scheduler.cycle_min_mom == 0.5);
  CHECK(scheduler.cycle_max_mom == 0.6);
  const auto warmup = [](const char* value) {
    return with_batch(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": )" +
                      std::string(value) + "}}");
  };
  CHECK(parse(warmup("[0.5]")).scheduler.warmup_max_lr == 0.5);
  CHECK(parse(warmup("[null]")).scheduler.warmup_max_lr == std::nullopt);
  CHECK(has(refusal(warmup("[0.5, 0.25]")),
            "an array with a value for each group is not supported: groups take shares"));
  CHECK(has(refusal(warmup("[]")), "for each group is not supported"));
  CHECK(has(refusal(warmup("[[0.5, 1]]")), "is not supported"));
  CHECK(has(refusal(R"({"gradient_clipping": [1.0]})"), "an array is not a number"));
}

TEST_CASE("a momentum that will reach 1 is refused before the first step") {
  const std::string grows = R"(, "decay_step_size": 1, "decay_mom_rate": 0.1)";
  TrainerValues values;
  values.total_steps = 6;  // a cycle of 4 steps, then 0.99 in step 6
  CHECK(notices(one_cycle(grows), values).empty());
  values.total_steps = 7;
  const auto refused = [&](const std::string& text) {
    try {
      parse(text, {}, values);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(has(refused(one_cycle(grows)),
            "scheduler.params.decay_mom_rate: raises the momentum to 1 at step 7"));
  values.total_steps.reset();  // a run of unknown length
  CHECK(
      has(notices(one_cycle(grows)),
          "at step 7, where averages diverge; a run of this many steps ends there with an error"));
  for (const char* fine :
       {R"(, "decay_step_size": 1, "decay_mom_rate": -0.1)",
        R"(, "decay_step_size": 0, "decay_mom_rate": 0.1)",
        R"(, "decay_step_size": 1, "decay_mom_rate": 0.1, "cycle_momentum": false)"}) {
    CAPTURE(fine);
    CHECK(notices(one_cycle(fine)).empty());
  }
  CHECK(has(notices(one_cycle(grows, R"(, "optimizer": {"type": "SGD"})")), "switched off"));
}

TEST_CASE("OneCycle's second beta is a notice if the file has another") {
  const auto betas = [](const char* values) {
    return R"(, "optimizer": {"type": "AdamW", "params": {"betas": )" + std::string(values) + "}}";
  };
  CHECK(
      has(notices(one_cycle("", betas("[0.9, 0.95]"))),
          "optimizer.params.betas: has no effect: scheduler.params.cycle_momentum moves the first "
          "beta and sets the second to 0.99"));
  CHECK(notices(one_cycle("", betas("[0.9, 0.99]"))).empty());
  CHECK(notices(one_cycle(R"(, "cycle_momentum": false)", betas("[0.9, 0.95]"))).empty());
  CHECK(notices(one_cycle("")).empty());
}

// Keys that no row of the table has: DeepSpeed refuses them in some sections, and ignores them in
// the others.
#include <doctest/doctest.h>

#include "tests/config/config_support.h"

using namespace zero;
using zero::tests::has;
using zero::tests::parse;
using zero::tests::refusal;

namespace {

std::string with_batch(const std::string& members) {
  return "{\"train_batch_size\": 8, " + members + "}";
}

std::string notices(const std::string& members) {
  std::string result;
  for (const std::string& notice : parse(with_batch(members)).notices) result += notice + "\n";
  return result;
}

}  // namespace

TEST_CASE("a key that DeepSpeed passes over is a notice, at every level that it leaves open") {
  const char* cases[] = {
      R"("msamp": {"enabled": true, "opt_level": "O2"})",
      R"("data_loader": {"batch_size": 32, "shuffle": true})",
      R"("dataloader": {"num_workers": 2})",
      R"("monitor": {"enabled": true})",
      R"("log": true)",
      R"("backend": "nccl")",
      R"("checkpointing": {"every": 10})",
      R"("cuda_visible_devices": "0,1")",
      R"("learning_rate": 0.1)",
      R"("block_size": 1024)",
      R"("device": "cpu")",
      R"("type": "sft")",
      R"("stage": "sft")",  // no value of zero_optimization.stage
      R"("communication": {"bucket": 1})",
      R"("gradient_clip": 1.0)",  // the default
      R"("checkpoint": {"tag_validation_enabled": true, "save_latest": true})",
      R"("flops_profiler": {"enabled": false, "warm_up": 10})",
      R"("activation_checkpointing": {"enabled": true})",
      R"("aio": {"depth": 3})",
      R"("optimizer": {"type": "AdamW", "fused": true})",
      R"("timers": {"wall": {}})",
      R"("data_types": {"params": "bf16"})",
  };
  for (const char* members : cases) {
    CAPTURE(members);
    const std::string text = notices(members);
    CHECK(has(text, ": no effect here: DeepSpeed has no such key either, and ignores it\n"));
    CHECK(text.find('\n') + 1 == text.size());
  }
  CHECK(notices(R"("msamp": {}, "checkpoint": {"save_best": 1}, "optimizer": {"name": "a"})") ==
        "msamp, checkpoint.save_best, optimizer.name: no effect here: DeepSpeed has no such key "
        "either, and ignores it\n");
}

TEST_CASE("a slip of a known key is refused with that key, wherever it stands") {
  const struct {
    const char *members, *nearest;
  } cases[] = {
      {R"("gradient_acumulation_steps": 2)", "gradient_accumulation_steps"},
      {R"("zero_optimisation": {})", "zero_optimization"},
      {R"("optimiser": {"type": "SGD"})", "optimizer"},
      {R"("wall_clock_brakdown": true)", "wall_clock_breakdown"},
      {R"("gradient_accumulation": 2)", "gradient_accumulation_steps"},
      {R"("gradient_clip": 0.5)", "gradient_clipping"},
      {R"("checkpoint": {"tag_validaton": "Warn"})", "checkpoint.tag_validation"},
      {R"("optimizer": {"typ": "SGD"})", "optimizer.type"},
      {R"("optimizer": {"type": "SGD", "parms": {}})", "optimizer.params"},
      {R"("aio": {"block_sizes": 4096})", "aio.block_size"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.members);
    CHECK(has(refusal(with_batch(c.members)),
              ": unknown key; nearest known key: " + std::string(c.nearest)));
  }
  // If a key is given already, a key with some of its words is not taken for a misspelling of it.
  CHECK(has(notices(R"("batch_size": 4)"), "batch_size: no effect here"));
  CHECK(has(refusal(R"({"batch_size": 4})"), "nearest known key: train_batch_size"));
}

TEST_CASE("closed sections: refused as by DeepSpeed, with advice only if a key is similar") {
  CHECK(has(refusal(R"({"fp16": {"opt_levels": "O2", "scale": 1}})"),
            "fp16.scale: unknown key; zero config explain fp16 lists those that are known"));
  CHECK(has(refusal(R"({"zero_optimization": {"verbose": true}})"),
            "zero config explain zero_optimization lists"));
  CHECK(has(refusal(R"({"zero_optimization": {"gradient_clipping": 1}})"),
            "zero_optimization.gradient_clipping: unknown key; its place is gradient_clipping"));
  CHECK(has(refusal(R"({"optimizer": {"params": {"fused": true}}})"),
            "optimizer.params.fused: unknown key; zero config explain optimizer.params lists"));
  CHECK(has(refusal("{}", {{"msamp.enabled", "1"}}), "override: msamp.enabled: unknown key"));
}

TEST_CASE("a known key at the wrong place is refused with the right place, if it would act there") {
  const struct {
    const char *members, *place;
  } cases[] = {
      {R"("offload_optimizer": {"device": "cpu"})",
       "offload_optimizer: DeepSpeed passes over it here; its place is "
       "zero_optimization.offload_optimizer"},
      {R"("offload_param": {"device": "nvme", "nvme_path": "/data"})",
       "zero_optimization.offload_param"},
      {R"("stage": 2)", "zero_optimization.stage"},
      {R"("lr": 0.1)", "optimizer.params.lr"},
      {R"("optimizer": {"type": "AdamW", "params": {}, "weight_decay": 0.1})",
       "optimizer.weight_decay: DeepSpeed passes over it here; its place is "
       "optimizer.params.weight_decay"},
      {R"("optimizer": {"type": "AdamW", "lr": 0.1})", "optimizer.params.lr"},
      {R"("scheduler": {"type": "WarmupLR", "warmup_num_steps": 5})",
       "scheduler.params.warmup_num_steps"},
      {R"("cpu_offload": true)", "zero_optimization.offload_optimizer"},
      {R"("max_grad_norm": 0.5)",
       "its place would be optimizer.params.max_grad_norm: DeepSpeed refuses it too: it is written "
       "gradient_clipping"},
      {R"("loss_scale": 128)", "fp16.loss_scale"},
      {R"("nvme_path": "/data")", ".nvme_path"},
      {R"("reduce_group_size": 2)", "zero_core.reduce_group_size"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.members);
    const std::string message = refusal(with_batch(c.members));
    CHECK(has(message, c.place));
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("a known key at the wrong place is a notice if it would change nothing") {
  const char* cases[] = {
      R"("offload_optimizer": {"device": "none"})",
      R"("optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}, "weight_decay": 0.1})",
      R"("optimizer": {"type": "AdamW", "eps": 1e-8})",
      R"("checkpoint": {"partition_activations": true})",
      R"("max_grad_norm": 1.0)",
      R"("cpu_offload": false)",
      R"("overlap_comm": true)",
  };
  for (const char* members : cases) {
    CAPTURE(members);
    CHECK(has(notices(members), "; here it has no effect, and there it would change nothing"));
  }
}

// Several ranks on GPUs, which they may share: equal bits at stages 0-3 in deterministic mode, and
// equal to the CPU ranks', as are the bytes that each stage sends. gpu_ranks [plain]: plain NCCL,
// run twice, for run-to-run equality.
#include <cstdio>
#include <cstring>

#include "tests/support/mirrored_toy.h"

namespace {

constexpr int steps = 6;

toy::Trace train(zero::Runtime& runtime, int stage, bool bf16, bool deterministic) {
  zero::Config config = toy::config(stage, {});
  config.bf16_enabled = bf16;
  config.zero_core.deterministic = deterministic;
  zero::EngineReport report;
  toy::Trace trace = toy::mirrored_train(runtime, {}, config, steps, &report);
  if (runtime.is_root())
    std::printf("%d ranks, %s, stage %d: sent %lld bytes\n", runtime.size(), bf16 ? "bf16" : "fp32",
                stage, static_cast<long long>(toy::bytes_sent(report)));
  return trace;
}

void compare_stages(zero::Runtime& runtime, bool deterministic) {
  for (const bool bf16 : {false, true}) {
    const toy::Trace expected = train(runtime, 0, bf16, deterministic);
    for (const int stage : {0, 1, 2, 3}) {
      if (!deterministic && stage > 0) continue;
      if (train(runtime, stage, bf16, deterministic) == expected) continue;
      runtime.fail("stage " + std::to_string(stage) + " differs (bf16 " + std::to_string(bf16) +
                   ")");
    }
    if (runtime.is_root())
      std::printf("%d ranks, %s: equal bits, digest %016llx\n", runtime.size(),
                  bf16 ? "bf16" : "fp32", static_cast<unsigned long long>(expected.digest));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool plain = argc > 1 && std::strcmp(argv[1], "plain") == 0;
  zero::RuntimeOptions options;
  options.device = argc > 1 && std::strcmp(argv[1], "cpu") == 0 ? "cpu" : "cuda";
  options.share_gpu = true;
  return zero::run(
      argc, argv, [&](zero::Runtime& runtime) { compare_stages(runtime, !plain); }, options);
}

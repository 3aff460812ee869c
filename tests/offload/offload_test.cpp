// State, gradients and parameters in a file change no bit, for any chunks, slots, ratio, stage,
// precision and number of ranks.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/offload/offload_support.h"
#include "zero/plan/engine_plan.h"

using namespace offload_support;

namespace {

struct Variant {
  std::string name;
  std::function<void(zero::Config&)> change;
  const char* executor = "inline";
};

std::vector<Variant> state_variants() {
  const auto optimizer = [](auto change) {
    return [=](zero::Config& c) { change(c.zero_optimization.offload_optimizer, c.zero_core); };
  };
  return {
      {"one page at a time", [](zero::Config&) {}},
      {"worker streams", [](zero::Config&) {}, "worker"},
      {"one slot", optimizer([](auto& o, auto&) { o.buffer_count = 0; })},
      {"two slots", optimizer([](auto& o, auto&) { o.buffer_count = 3; }), "worker"},
      {"nine slots", optimizer([](auto& o, auto&) { o.buffer_count = 10; })},
      {"no pipelining",
       optimizer([](auto& o, auto&) { o.pipeline_read = o.pipeline_write = false; }), "worker"},
      {"pipelined writes alone", optimizer([](auto& o, auto&) { o.pipeline_read = false; })},
      {"fast_init", optimizer([](auto& o, auto&) { o.fast_init = true; })},
      {"ratio 0", optimizer([](auto& o, auto&) { o.ratio = 0; })},
      {"ratio 0.3", optimizer([](auto& o, auto&) { o.ratio = 0.3; })},
      {"ratio 0.8", optimizer([](auto& o, auto&) { o.ratio = 0.8; }), "worker"},
      {"cache", optimizer([](auto&, auto& core) { core.offload_cache_bytes = 100'000; })},
      {"chunks of 50 kB", optimizer([](auto&, auto& core) { core.offload_chunk_bytes = 50'000; })},
      {"whole units", optimizer([](auto&, auto& core) { core.offload_chunk_bytes = 1 << 26; })},
      {"large blocks", [](zero::Config& c) { c.aio.block_size = 1 << 20; }, "worker"},
  };
}

void check_variants(int ranks, const zero::Config& base, const std::vector<int>& stages,
                    std::size_t stride) {
  const toy::Trace expected = run(ranks, base);
  const DiskDirectory directory;
  const std::vector<Variant> variants = state_variants();
  for (const int stage : stages)
    for (std::size_t v = static_cast<std::size_t>(ranks) % stride; v < variants.size();
         v += stride) {
      zero::Config config = with_states(base, directory.path());
      config.zero_optimization.stage = stage;
      variants[v].change(config);
      CAPTURE(ranks);
      CAPTURE(stage);
      CAPTURE(variants[v].name);
      CHECK(run(ranks, config, 4, variants[v].executor) == expected);
    }
  CHECK(std::filesystem::is_empty(directory.path()));
}

}  // namespace

TEST_CASE("optimizer state in a file: equal bits for every stage, ratio, slot count and chunk") {
  check_variants(2, config(0), {1, 2, 3}, 1);
  check_variants(2, config(0, 1, true), {1, 2, 3}, 1);
}

TEST_CASE("optimizer state in a file: every number of ranks, with accumulation") {
  for (const int ranks : {1, 3, 4})
    for (const bool bf16 : {false, true})
      for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last}) {
        zero::Config base = config(0, 3, bf16);
        base.zero_core.gradient_sync = sync;
        check_variants(ranks, base, {1, 2, 3}, 5);
      }
}

TEST_CASE("gradients in a file: every mix of dtypes, as they travel and as they rest") {
  using zero::DType;
  const DiskDirectory directory;
  const DType all[] = {DType::fp32, DType::bf16, DType::fp16};
  int number = 0;
  for (const DType compute : all)
    for (const DType wire : all)
      for (const DType sum : all) {
        const int ranks = number % 3 + 1, stage = number % 2 + 2;
        zero::Config base = config(0, number % 4 == 0 ? 1 : 3, compute == DType::bf16);
        base.fp16_enabled = compute == DType::fp16;
        base.communication_data_type = wire;
        base.grad_accum_dtype = sum;
        base.zero_core.gradient_sync =
            number % 5 == 0 ? zero::GradientSync::last : zero::GradientSync::each;
        zero::Config c = with_states(base, directory.path());
        c.zero_optimization.stage = stage;
        c.zero_optimization.reduce_bucket_size = 1000;
        c.zero_optimization.offload_optimizer.ratio = number % 2 == 0 ? 1 : 0.6;
        CAPTURE(name_of(compute));
        CAPTURE(name_of(wire));
        CAPTURE(name_of(sum));
        CAPTURE(ranks);
        CHECK(run(ranks, c, 4, number++ % 2 == 0 ? "worker" : "inline") == run(ranks, base));
      }
}

TEST_CASE("wire formats: equal bits with parameters, gradients and states in a file") {
  const DiskDirectory directory;
  for (const bool bf16 : {false, true}) {
    zero::Config base = config(2, 2, bf16);
    base.zero_core.gradient_sync = zero::GradientSync::each;
    base.zero_core.wire.gather = "int8";
    base.zero_core.wire.reduce = "int4";
    const toy::Trace expected = run(3, base, 4);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(bf16);
      CAPTURE(stage);
      zero::Config c = with_states(base, directory.path());
      c.zero_optimization.stage = stage;
      CHECK(run(3, c, 4) == expected);
      if (stage == 3) CHECK(run(3, with_parameters(c, directory.path()), 4) == expected);
    }
  }
}

TEST_CASE("parameters in a file at stage 3, with and without the states") {
  const DiskDirectory directory;
  for (const int ranks : {1, 2, 3, 4})
    for (const bool bf16 : {false, true})
      for (const int accumulation : {1, 2}) {
        zero::Config base = config(3, accumulation, bf16);
        const toy::Trace expected = run(ranks, base, 3);
        for (const bool states : {false, true})
          for (const char* executor : {"inline", "worker"})
            for (const int buffers : {1, 2, 5}) {
              zero::Config c = with_parameters(base, directory.path());
              if (states) c = with_states(c, directory.path());
              c.zero_optimization.offload_param.buffer_count = buffers;
              if (buffers == 2) c.zero_optimization.offload_param.max_in_cpu = 3000;
              if (buffers == 5) c.zero_core.reshard_after_forward = false;
              CAPTURE(ranks);
              CAPTURE(bf16);
              CAPTURE(states);
              CAPTURE(executor);
              CAPTURE(buffers);
              CHECK(run(ranks, c, 3, executor) == expected);
            }
      }
}

TEST_CASE("master weights and states in 16 bits, in a file") {
  const DiskDirectory directory;
  for (const int ranks : {1, 3})
    for (const bool bf16 : {false, true})
      for (const bool states : {false, true}) {
        zero::Config base = config(3, 2, bf16);
        base.fp16_enabled = !bf16;
        base.bf16_master_weights_and_grads = bf16;
        base.fp16_master_weights_and_grads = !bf16;
        base.bf16_optimizer_states = bf16 && states;
        const toy::Trace expected = run(ranks, base, 3);
        CAPTURE(ranks);
        CAPTURE(bf16);
        const zero::Config parameters = with_parameters(base, directory.path());
        CHECK(run(ranks, parameters, 3) == expected);
        CHECK(run(ranks, with_states(parameters, directory.path()), 3, "worker") == expected);
        zero::Config some = with_states(base, directory.path());
        some.zero_optimization.offload_optimizer.ratio = 0.5;
        CHECK(run(ranks, some, 3) == expected);
      }
}

TEST_CASE("random delays around every instruction and file access") {
  const DiskDirectory directory;
  zero::Config base = config(3, 2, true);
  const toy::Trace expected = run(2, base);
  zero::testing::inject_delays(5, 300);
  for (const int slots : {1, 2, 4}) {
    zero::Config c = with_parameters(with_states(base, directory.path()), directory.path());
    c.zero_optimization.offload_optimizer.buffer_count = slots;
    c.zero_optimization.offload_param.buffer_count = slots;
    CHECK(run(2, c, 4, "worker") == expected);
  }
  zero::testing::inject_delays(0, 0);
}

namespace {

// Every access to the state from outside, in one run.
struct Seen {
  std::vector<std::vector<float>> values;
  std::vector<double> norms;
  std::uint64_t digest = 0;
  bool operator==(const Seen&) const = default;
};

template <class T>
Seen look(zero::Runtime& runtime, const zero::Config& config) {
  const toy::Dims d = dims();
  zero::Engine engine(runtime, toy::describe(d), config);
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(d);
  Seen seen;
  for (int step = 0; step < 4; ++step) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(d, a, step * 10 + runtime.rank());
      const float scale = step == 1 ? std::numeric_limits<float>::infinity() : micro.loss_scale();
      micro.loss(toy::micro_step<T>(engine, d, a, scale));
    }
    zero::StepOptions options;
    if (step == 2)
      options.inspect = [&](zero::Gradients& gradients) {
        seen.norms.push_back(gradients.norm("block.1.weight"));
        gradients.edit([](zero::ParamShard shard) {
          for (float& value : shard.values) value *= 0.5f;
        });
        seen.norms.push_back(gradients.norm());
        return zero::Decision::apply;
      };
    const zero::StepResult result = engine.step(options).wait();
    CHECK(result.skipped == (step == 1));
    seen.norms.push_back(result.grad_norm);
  }
  for (const auto& [name, elements] : {std::pair{"embed.wte", d.vocabulary * d.channels},
                                       {"block.1.weight", d.channels * d.channels},
                                       {"block.2.norm", d.channels}})
    for (const char* what : {"value", "grad", "master", "exp_avg", "exp_avg_sq"})
      engine.read(name, what, seen.values.emplace_back(static_cast<std::size_t>(elements)));
  {
    auto evaluation = engine.evaluate();
    for (int batch = 0; evaluation.next(batch < 2); ++batch) {
      toy::load_samples(d, a, batch);
      seen.norms.push_back(toy::evaluate<T>(engine, d, a));
    }
  }
  {
    auto full = engine.materialize();
    seen.norms.push_back(toy::evaluate<T>(engine, d, a));
  }
  seen.digest = engine.digest();
  return seen;
}

Seen look(int ranks, const zero::Config& config, const char* executor) {
  Seen seen;
  zero::RuntimeOptions options;
  options.executor = executor;
  zero::testing::run_ranks(
      ranks,
      [&](zero::Runtime& runtime) {
        Seen own =
            config.bf16_enabled ? look<zero::bf16>(runtime, config) : look<float>(runtime, config);
        if (runtime.is_root()) seen = std::move(own);
      },
      options);
  return seen;
}

}  // namespace

TEST_CASE("reading, inspecting, editing, skipping, evaluating and materializing see the same") {
  const DiskDirectory directory;
  for (const int ranks : {1, 3})
    for (const bool bf16 : {false, true}) {
      const Seen expected = look(ranks, config(3, 1, bf16), "inline");
      for (const char* executor : {"inline", "worker"}) {
        const zero::Config states = with_states(config(3, 1, bf16), directory.path());
        CHECK(look(ranks, states, executor) == expected);
        CHECK(look(ranks, with_parameters(states, directory.path()), executor) == expected);
        zero::Config stage1 = with_states(config(1, 1, bf16), directory.path());
        stage1.zero_optimization.offload_optimizer.ratio = 0.5;
        CHECK(look(ranks, stage1, executor) == expected);
      }
    }
}

TEST_CASE("values cannot be set between micro steps, because the update's inputs are read ahead") {
  const DiskDirectory directory;
  zero::Runtime runtime = zero::Runtime::single();
  zero::Engine engine(runtime, toy::describe(dims()),
                      with_parameters(with_states(config(3), directory.path()), directory.path()));
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(dims());
  const auto micro_steps = [&] {
    for (zero::MicroStep micro : engine.micro_steps())
      micro.loss(toy::micro_step<float>(engine, dims(), a, micro.loss_scale()));
  };
  micro_steps();
  CHECK_THROWS_WITH_AS(engine.initialize(toy::fill),
                       doctest::Contains("it belongs after Engine::step()"), zero::UsageError);
  engine.step();
  const std::uint64_t trained = engine.digest();
  engine.initialize(toy::fill);
  CHECK(engine.digest() != trained);
  micro_steps();
  engine.step();
}

TEST_CASE("checkpoints move freely between memory and file") {
  const DiskDirectory directory, checkpoints;
  const zero::Config none = config(3, 1, true);
  zero::Config cpu = none;
  cpu.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
  const zero::Config states = with_states(config(2, 1, true), directory.path());
  const zero::Config all = with_parameters(with_states(none, directory.path()), directory.path());
  std::uint64_t after_3 = 0, after_6 = 0;
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims()), none);
    engine.initialize(toy::fill);
    for (const auto& [steps, digest] : {std::pair{3, &after_3}, {6, &after_6}}) {
      train_until(engine, runtime, steps);
      const std::uint64_t found = engine.digest();
      if (runtime.is_root()) *digest = found;
    }
  });
  int number = 0;
  for (const zero::Config* from :
       std::initializer_list<const zero::Config*>{&none, &cpu, &states, &all})
    for (const zero::Config* to :
         std::initializer_list<const zero::Config*>{&none, &states, &all}) {
      const std::string path = checkpoints.path() + "/" + std::to_string(number);
      const bool asynchronous = number++ % 2 == 0;
      zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
        zero::Config saving = *from;
        saving.zero_core.async_staging_bytes = asynchronous ? 1 << 20 : 0;
        zero::Engine engine(runtime, toy::describe(dims()), saving);
        engine.initialize(toy::fill);
        train_until(engine, runtime, 3);
        const zero::SaveTicket ticket =
            engine.save_checkpoint(path, {.asynchronous = asynchronous});
        train_until(engine, runtime, 5);
        ticket.wait();
      });
      zero::testing::run_ranks(number % 3 + 1, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, toy::describe(dims()), *to);
        REQUIRE(engine.resume(path));
        if (runtime.size() == 2) train_until(engine, runtime, 6);
        CHECK(engine.digest() == (runtime.size() == 2 ? after_6 : after_3));
      });
    }
}

TEST_CASE("the plan has the home of every array") {
  const auto config_of = [](double ratio, std::int64_t cache) {
    zero::Config c = with_states(config(3), "/somewhere");
    c.zero_optimization.offload_optimizer.ratio = ratio;
    c.zero_core.offload_cache_bytes = cache;
    return c;
  };
  const auto in_file = [&](const zero::Config& c) {
    const zero::detail::EnginePlan plan(toy::describe(dims()).declared(), c, {1, 2});
    std::pair<std::int64_t, std::size_t> result{0, plan.inputs.chunks.size()};
    bool seen = false;
    for (const zero::detail::Chunk& chunk : plan.inputs.chunks) {
      result.first += chunk.state_in_file;
      CHECK((chunk.state_in_file || !seen));  // the first ones stay in memory
      seen |= chunk.state_in_file;
      CHECK(chunk.begin % zero::detail::chunk_alignment_elements == 0);
      CHECK((chunk.slot >= 0) == chunk.state_in_file);
      CHECK(chunk.slot < 3);
    }
    return result;
  };
  const auto [all, chunks] = in_file(config_of(1, 0));
  CHECK(chunks > 8);
  CHECK(all == static_cast<std::int64_t>(chunks));
  CHECK(in_file(config_of(0, 0)).first == 0);
  for (const double ratio : {0.1, 0.5, 0.77})
    CHECK(in_file(config_of(ratio, 0)).first ==
          static_cast<std::int64_t>(chunks) -
              static_cast<std::int64_t>(std::floor((1 - ratio) * static_cast<double>(chunks))));
  CHECK(in_file(config_of(1, 1 << 30)).first == 0);
  CHECK(in_file(config_of(1, 40'000)).first < all);
}

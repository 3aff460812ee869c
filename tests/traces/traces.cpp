// Records every rank's actions in two steps and an evaluation, as one hash for each of many
// settings: collectives, copies, casts, kernels and the places of their buffers, the plans, and the
// planned bytes. If a change of the code is meant to leave all of that alone, the hashes must stay.
//
//   traces check FILE [STRIDE]   compares with the hashes in FILE, every STRIDE-th setting; 1 if
//   one differs
//   traces write FILE COUNT      writes the hashes of the settings 0 to COUNT - 1
//   traces show INDEX [RANK]     prints a setting's name and the lines of a rank's trace, to be
//   compared by diff
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "tests/traces/recording.h"
#include "tests/traces/settings.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/zero.h"

namespace {

using recording::Trace;
using settings::Setting;

constexpr int steps = 2;
const toy::Dims dims;

// Takes the pointers that the kernels of a micro step would use; values are not accessed.
template <class T>
void walk_micro_step(zero::Engine& engine, zero::MicroStep micro) {
  auto units = engine.units();
  { (void)units.front().forward().template value<T>("wte"); }
  for (int b = 0; b < dims.blocks; ++b) {
    auto scope = units[std::size_t(b) + 1].forward();
    (void)scope.template value<T>("weight");
    if (b + 1 < dims.blocks) (void)scope.template value<T>(toy::next_norm(b));
  }
  {
    auto scope = units.back().backward();
    (void)scope.template value<T>("gain");
    (void)scope.template grad<T>("gain");
    (void)scope.template grad<T>("embed.wte");
  }
  micro.loss(1.0);
  for (int b = dims.blocks - 1; b >= 0; --b) {
    auto scope = units[std::size_t(b) + 1].backward();
    if (b + 1 < dims.blocks) (void)scope.template grad<T>(toy::next_norm(b));
    (void)scope.template grad<T>("norm");
    (void)scope.template grad_target<T>("weight");
    (void)scope.template grad<T>("bias");
  }
  (void)units.front().backward().template grad<T>("wte");
}

void walk_micro_step(zero::Engine& engine, zero::MicroStep micro) {
  switch (engine.compute_dtype()) {
    case zero::DType::bf16:
      return walk_micro_step<zero::bf16>(engine, micro);
    case zero::DType::fp16:
      return walk_micro_step<zero::fp16>(engine, micro);
    default:
      return walk_micro_step<float>(engine, micro);
  }
}

void walk_evaluation(zero::Engine& engine) {
  zero::Evaluation evaluation = engine.evaluate();
  evaluation.next(true);
  for (zero::Unit& unit : engine.units()) (void)unit.forward();
  evaluation.next(false);
}

void record_ledger(const zero::Ledger& ledger, Trace& trace) {
  for (int tier = 0; tier < zero::tier_count; ++tier)
    // Without peer_copies, which only keepers hold.
    for (int category = 0; category < int(zero::MemoryCategory::peer_copies); ++category) {
      const zero::MemoryAccount& account = ledger.account(
          static_cast<zero::MemoryCategory>(category), static_cast<zero::Tier>(tier));
      trace.line("memory", tier, category, account.planned, account.current);
    }
}

void walk(zero::Runtime& runtime, const Setting& setting, Trace& trace) {
  zero::Engine engine(runtime, toy::describe(dims), setting.config);
  engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 1.f); });
  record_ledger(runtime.core().ledger(), trace);
  for (int step = 0; step < steps; ++step) {
    trace.line("step", step);
    if (setting.open_ended)
      for (int micro = 0; micro < engine.batch().accumulation; ++micro)
        walk_micro_step(engine, engine.begin_micro_step());
    else
      for (zero::MicroStep micro : engine.micro_steps()) walk_micro_step(engine, micro);
    engine.step().wait();
  }
  trace.line("evaluation");
  walk_evaluation(engine);
  record_ledger(runtime.core().ledger(), trace);
}

void record_plan(const zero::detail::StepPlan& plan, Trace& trace) {
  for (const zero::detail::Instruction& instruction : plan.instructions) {
    std::string after;
    for (const std::size_t index : instruction.after) after += "," + std::to_string(index);
    trace.line("plan", plan.name, zero::detail::name_of(instruction.op), instruction.target,
               instruction.stream, after);
  }
}

void record_plans(const Setting& setting, const zero::comm::Topology& topology, Trace& trace) {
  const zero::ModelSpec spec = toy::describe(dims);
  zero::detail::PlanRank on{topology.rank, topology.size, setting.on_gpu};
  on.node_ranks = topology.neighbors_per_node();
  const zero::detail::EnginePlan plan(spec.declared(), setting.config, on);
  const zero::detail::StepPlans& steps = plan.steps;
  for (const zero::detail::StepPlan* each :
       {&steps.first, &steps.middle, &steps.last, &steps.only, &steps.late_reductions,
        &steps.update, &steps.evaluation_first, &steps.evaluation_next})
    record_plan(*each, trace);
}

zero::comm::Topology topology_of(int rank, const Setting& setting) {
  const int on_node = setting.ranks / setting.nodes;
  zero::comm::Topology topology{
      rank, setting.ranks, rank % on_node, on_node, rank / on_node, setting.nodes, {}};
  for (int r = 0; r < setting.ranks; ++r) topology.node_of.push_back(r / on_node);
  return topology;
}

// A refusal is also recorded, without its text.
void record_rank(int rank, const Setting& setting, const std::shared_ptr<recording::Job>& job,
                 const std::shared_ptr<recording::Meeting>& on_host,
                 const std::shared_ptr<recording::Meeting>& on_device, Trace& trace) {
  recording::of_this_rank = &trace;
  const zero::comm::Topology topology = topology_of(rank, setting);
  try {
    record_plans(setting, topology, trace);
    mock::Device gpu(mock::Order::in_turn, 0);
    zero::Device& device = setting.on_gpu ? static_cast<zero::Device&>(gpu) : zero::host_device();
    zero::detail::Accelerator accelerator;
    accelerator.device = std::make_unique<recording::Device>(device, trace);
    accelerator.kernels = std::make_unique<recording::Kernels>(trace);
    accelerator.codec = &recording::codec;
    if (setting.on_gpu && setting.ranks > 1)
      accelerator.communicator = std::make_unique<recording::Communicator>(
          recording::World::all_ranks(topology), on_device, trace, "device");
    zero::RuntimeOptions options;
    options.abort_job = options.catch_signals = false;
    options.threads = 1;
    options.executor = "inline";
    zero::Runtime runtime(std::make_unique<zero::detail::RuntimeCore>(
        std::make_unique<recording::World>(topology, job, on_host, trace), options,
        std::move(accelerator)));
    walk(runtime, setting, trace);
  } catch (const zero::Error& error) {
    trace.line("refused with", error.exit_code());
    if (rank == 0) trace.refusal = error.what();
    job->abandon();
  }
}

std::vector<Trace> record(const Setting& setting, bool keeps_lines) {
  std::vector<Trace> traces(std::size_t(setting.ranks), Trace(keeps_lines));
  const auto job = std::make_shared<recording::Job>();
  const auto on_host = std::make_shared<recording::Meeting>(job, setting.ranks);
  const auto on_device = std::make_shared<recording::Meeting>(job, setting.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setting.ranks; ++rank)
    threads.emplace_back([&, rank] {
      record_rank(rank, setting, job, on_host, on_device, traces[std::size_t(rank)]);
    });
  for (std::thread& thread : threads) thread.join();
  return traces;
}

std::string hash_of(const Setting& setting) {
  std::uint64_t hash = 0;
  for (const Trace& trace : record(setting, false)) hash = hash * 0x100000001b3u ^ trace.hash();
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

int write(const char* file, int count, const std::string& folder) {
  std::ofstream out(file);
  for (int index = 0; index < count; ++index)
    out << hash_of(settings::setting(index, folder)) << "\n";
  return out.flush() ? 0 : 1;
}

int check(const char* file, int stride, const std::string& folder) {
  std::ifstream in(file);
  int differ = 0, checked = 0, index = 0;
  for (std::string expected; std::getline(in, expected); ++index) {
    if (index % stride != 0) continue;
    const Setting setting = settings::setting(index, folder);
    ++checked;
    if (hash_of(setting) == expected) continue;
    if (++differ <= 20) std::cout << "setting " << index << " differs: " << setting.name << "\n";
  }
  std::cout << checked << " settings checked, " << differ << " differ\n";
  return differ > 0 || checked == 0 ? 1 : 0;
}

int show(int index, int rank, const std::string& folder) {
  const Setting setting = settings::setting(index, folder);
  std::cout << setting.name << "\n";
  if (rank >= setting.ranks) return 1;
  const Trace trace = record(setting, true)[std::size_t(rank)];
  std::cout << trace.lines() << trace.refusal << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const zero::tests::TemporaryDirectory folder;
  const std::string path = folder.path().string();
  const std::string command = argc > 2 ? argv[1] : "";
  std::freopen("/dev/null", "w", stderr);  // hides notices of ten thousand engines
  if (command == "check") return check(argv[2], argc > 3 ? std::atoi(argv[3]) : 1, path);
  if (command == "write" && argc > 3) return write(argv[2], std::atoi(argv[3]), path);
  if (command == "show") return show(std::atoi(argv[2]), argc > 3 ? std::atoi(argv[3]) : 0, path);
  std::cout << "usage: traces check FILE [STRIDE] | write FILE COUNT | show INDEX [RANK]\n";
  return 10;
}

// Every level gives the bits of the scalar one.
#include "optim/cpu/kernels.h"
#include "zero/base/hash.h"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>

#include "optim/rule_table.h"
#include "tests/optim/support.h"

namespace {

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

struct Result {
  std::vector<float> master, first, second;
  std::vector<std::uint16_t> copy;
  std::vector<float> directions = {};
  std::vector<std::uint8_t> changed = {};

  bool operator==(const Result& other) const {
    return same_bits(master, other.master) && same_bits(first, other.first) &&
           same_bits(second, other.second) && copy == other.copy &&
           same_bits(directions, other.directions) && changed == other.changed;
  }
};

struct Case {
  DType gradient, copy;  // fp32: no copy
  std::size_t count, offset;
  Numbers numbers;
  bool tracks = true;
  bool edges = false;  // of rounding, in the masters
};

// Returns the masters before the update: of edges, values halfway between two of bf16 or next to
// that, both zeros, infinities, and NaNs of any payload, of which rounding drops a part.
std::vector<float> masters_of(const Case& c) {
  std::vector<float> masters = random_floats(c.offset + c.count, c.numbers, 1);
  if (!c.edges) return masters;
  constexpr std::uint32_t sizes[] = {0x00000000, 0x3f800000, 0x42c80000, 0x47000000, 0x7f800000};
  constexpr std::uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (std::size_t i = 0; i < masters.size(); ++i) {
    const auto high = static_cast<std::uint32_t>(i / 30 % 4) << 16 |
                      static_cast<std::uint32_t>(i / 120 % 2) << 31;
    masters[i] = std::bit_cast<float>(sizes[i % 5] | high | low[i % 6]);
  }
  return masters;
}

// All rules and levels start from these.
struct Inputs {
  explicit Inputs(const Case& c)
      : of(c),
        start{masters_of(c), random_floats(c.offset + c.count, c.numbers, 2),
              random_floats(c.offset + c.count, c.numbers, 3),
              std::vector<std::uint16_t>(c.offset + c.count, 7)},
        gradient(encode(random_floats(c.offset + c.count, c.numbers, 4), c.gradient)) {
    for (float& x : start.second) x = std::fabs(x);
    start.directions.assign(c.offset + c.count, 7.f);
    start.changed.assign((c.offset + c.count) / 8 + 1, 0);
  }

  Case of;
  Result start;
  std::vector<unsigned char> gradient;
};

template <class Run>
Result update(const Inputs& inputs, const Run& run) {
  const Case& c = inputs.of;
  Result result = inputs.start;
  float* state[] = {result.first.data() + c.offset, result.second.data() + c.offset};
  const cpu::UpdateArrays arrays{
      .count = static_cast<std::int64_t>(c.count),
      .gradient = inputs.gradient.data() + c.offset * static_cast<std::size_t>(size_of(c.gradient)),
      .gradient_dtype = c.gradient,
      .master = result.master.data() + c.offset,
      .state = state,
      .parameter = c.copy == DType::fp32 ? nullptr : result.copy.data() + c.offset,
      .parameter_dtype = c.copy,
      .changed = c.tracks ? result.changed.data() : nullptr};
  run(arrays, result.directions.data() + c.offset);
  return result;
}

// All rules, then the directions of rules that have one.
constexpr RuleKind updates[] = {
    RuleKind::adamw,           RuleKind::adam, RuleKind::sgd,       RuleKind::sgd_momentum,
    RuleKind::sgd_nesterov,    RuleKind::lion, RuleKind::adagrad,   RuleKind::lamb,
    RuleKind::lamb_eps_inside, RuleKind::muon, RuleKind::adafactor, RuleKind::adafactor_matrix};
constexpr RuleKind directions_of[] = {RuleKind::lamb, RuleKind::lamb_eps_inside, RuleKind::muon,
                                      RuleKind::adafactor};
constexpr int rules = std::size(updates) + std::size(directions_of);

OptimizerOptions options_of(RuleKind kind) {
  OptimizerOptions options;
  options.type = kind == RuleKind::adamw                              ? "AdamW"
                 : kind == RuleKind::adam                             ? "Adam"
                 : kind == RuleKind::lion                             ? "Lion"
                 : kind == RuleKind::adagrad                          ? "Adagrad"
                 : rule_of(kind).name == "Adafactor"                  ? "Adafactor"
                 : rule_of(kind).scope == UpdateScope::tensor_norms   ? "Lamb"
                 : rule_of(kind).scope == UpdateScope::whole_matrices ? "Muon"
                                                                      : "SGD";
  options.adam_w_mode = false;
  options.momentum = kind == RuleKind::sgd ? 0 : 0.9;
  options.dampening = 0.1;
  options.nesterov = kind == RuleKind::sgd_nesterov;
  options.eps_inside_sqrt = kind == RuleKind::lamb_eps_inside;
  options.ns_method = "standard";
  options.factored = kind == RuleKind::adafactor_matrix;
  return options;
}

void run_rule(int rule, const cpu::Kernels& kernels, const cpu::UpdateArrays& arrays,
              float* directions) {
  const int first_direction = std::size(updates);
  const bool directs = rule >= first_direction;
  const RuleKind kind = directs ? directions_of[rule - first_direction] : updates[rule];
  REQUIRE(rule_kind(options_of(kind)) == kind);
  const StepScalars scalars{
      .step = 3, .learning_rate = 1e-3f, .weight_decay = 0.1f, .gradient_multiplier = 0.3f};
  float factors[most_factors];
  rule_of(options_of(kind)).write(options_of(kind), scalars, factors);
  if (directs) return kernels.direct(kind, factors, arrays, directions);
  kernels.update(kind, factors, arrays);
}

// A bit is set if the rounded value differs.
void check_changes(const Inputs& inputs, const std::vector<unsigned char>& old,
                   const Result& result) {
  const Case& c = inputs.of;
  const auto now = encode(result.master, c.copy);
  const auto width = static_cast<std::size_t>(size_of(c.copy));
  std::vector<std::uint8_t> expected(result.changed.size());
  for (std::size_t i = 0; i < c.count; ++i)
    if (std::memcmp(&old[(c.offset + i) * width], &now[(c.offset + i) * width], width) != 0)
      expected[i / 8] |= static_cast<std::uint8_t>(1u << (i % 8));
  CHECK(result.changed == expected);
}

void compare(const Case& c) {
  const Inputs inputs(c);
  const auto old = encode(inputs.start.master, c.copy);
  for (int rule = 0; rule < rules; ++rule) {
    const auto result = [&](SimdLevel level) {
      return update(inputs, [&](const cpu::UpdateArrays& arrays, float* directions) {
        run_rule(rule, cpu::kernels(level), arrays, directions);
      });
    };
    const Result expected = result(SimdLevel::scalar);
    check_changes(inputs, old, expected);
    for (const SimdLevel level : vector_levels()) {
      INFO("rule " << rule << ", " << name_of(level) << ", gradient " << name_of(c.gradient)
                   << ", copy " << name_of(c.copy) << ", count " << c.count);
      CHECK(result(level) == expected);
    }
  }
}

}  // namespace

TEST_CASE("updates give equal bits at every level, count, offset and dtype") {
  for (const DType gradient : floating)
    for (const DType copy : floating) {
      for (std::size_t count = 0; count <= 67; ++count)
        compare({gradient, copy, count, count % 5, Numbers::wild});
      compare({gradient, copy, 5000, 3, Numbers::usual});
      compare({gradient, copy, 20000, 1, Numbers::wild});
    }
}

TEST_CASE("changes are exact where rounding turns, and for NaNs") {
  for (const DType gradient : floating)
    for (const DType copy : floating)
      for (const std::size_t count : {67ul, 4800ul})
        compare({gradient, copy, count, 0, Numbers::usual, true, true});
}

TEST_CASE("the copy written past the caches has the bits of the cached one") {
  // One of the offsets 0 and 8 is aligned to the vector.
  for (const DType copy : {DType::bf16, DType::fp16})
    for (const std::size_t offset : {0ul, 1ul, 8ul})
      compare({DType::bf16, copy, (1 << 19) + 5, offset, Numbers::usual});
}

TEST_CASE("updates do not depend on the cuts of a vector") {
  for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512})
    for (int rule = 0; rule < rules && supports(level); ++rule) {
      CAPTURE(rule);
      const Inputs inputs({DType::fp32, DType::bf16, 1000, 0, Numbers::usual, false});
      const cpu::Kernels& kernels = cpu::kernels(level);
      const Result whole = update(inputs, [&](const auto& arrays, float* directions) {
        run_rule(rule, kernels, arrays, directions);
      });
      const Result parts = update(inputs, [&](cpu::UpdateArrays arrays, float* directions) {
        const std::int64_t cuts[] = {0, 1, 18, 400, 999, 1000};
        const cpu::UpdateArrays all = arrays;
        for (int i = 0; i < 5; ++i) {
          const std::int64_t at = cuts[i];
          float* state[] = {all.state[0] + at, all.state[1] + at};
          arrays.count = cuts[i + 1] - at;
          arrays.gradient = static_cast<const float*>(all.gradient) + at;
          arrays.master = all.master + at;
          arrays.state = state;
          arrays.parameter = static_cast<std::uint16_t*>(all.parameter) + at;
          run_rule(rule, kernels, arrays, directions + at);
        }
      });
      CHECK(whole == parts);
    }
}

TEST_CASE("casts round as the base does, for every 16-bit pattern and for wild floats") {
  std::vector<std::uint16_t> halves(1 << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const auto floats = random_floats(100001, Numbers::wild, 5);
  const auto n = static_cast<std::int64_t>(floats.size());
  for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!supports(level)) continue;
    const cpu::Kernels& kernels = cpu::kernels(level);
    std::vector<float> wide(halves.size());
    kernels.cast(halves.data(), DType::bf16, wide.data(), DType::fp32, 1 << 16);
    for (std::size_t i = 0; i < halves.size(); ++i)
      REQUIRE(std::bit_cast<std::uint32_t>(wide[i]) == static_cast<std::uint32_t>(i) << 16);
    kernels.cast(halves.data(), DType::fp16, wide.data(), DType::fp32, 1 << 16);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const bool nan = (i & 0x7fff) > 0x7c00;
      const float expected = to_float(fp16{static_cast<std::uint16_t>(i | (nan ? 0x200 : 0))});
      REQUIRE(std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(expected));
    }
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      auto narrow = encode(std::vector<float>(floats.size()), dtype);
      kernels.cast(floats.data(), DType::fp32, narrow.data(), dtype, n);
      CHECK(narrow == encode(floats, dtype));
    }
  }
}

TEST_CASE("infinities and NaNs keep their kind in casts") {
  std::vector<float> values(19, 1.0f);
  values[0] = INFINITY;
  values[7] = -INFINITY;
  values[17] = NAN;
  values[18] = std::bit_cast<float>(0x7f800001u);
  for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!supports(level)) continue;
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      std::vector<unsigned char> narrow(2 * values.size());
      cpu::kernels(level).cast(values.data(), DType::fp32, narrow.data(), dtype, 19);
      CHECK(narrow == encode(values, dtype));
    }
  }
}

TEST_CASE("casts between the 16-bit types, sums and divisions give equal bits at every level") {
  for (std::size_t count = 0; count <= 67; ++count)
    for (const DType to : floating) {
      const auto n = static_cast<std::int64_t>(count);
      const auto sum = encode(random_floats(count, Numbers::wild, 8), to);
      for (const DType from : floating) {
        const auto source = encode(random_floats(count, Numbers::wild, 9), from);
        auto expected = sum, added = sum, divided = source;
        cpu::scalar_kernels.cast(source.data(), from, expected.data(), to, n);
        cpu::scalar_kernels.accumulate(added.data(), to, source.data(), from, n);
        cpu::scalar_kernels.divide(divided.data(), from, n, 3);
        for (const SimdLevel level : vector_levels()) {
          const cpu::Kernels& kernels = cpu::kernels(level);
          auto result = sum, total = sum, quotient = source;
          kernels.cast(source.data(), from, result.data(), to, n);
          CHECK(result == expected);
          kernels.accumulate(total.data(), to, source.data(), from, n);
          CHECK(total == added);
          kernels.divide(quotient.data(), from, n, 3);
          CHECK(quotient == divided);
        }
      }
    }
}

TEST_CASE("hashes of elements are those of the formula at every level, count and dtype") {
  std::vector<std::byte> bytes(40 * 8);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::int64})
    for (std::int64_t count = 0; count <= 40; ++count) {
      const std::uint64_t first = 0xfffffffffffffff0u + static_cast<std::uint64_t>(count);
      std::uint64_t expected = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, bytes.data() + i * size_of(dtype),
                    static_cast<std::size_t>(size_of(dtype)));
        expected += mixed(mixed(first + static_cast<std::uint64_t>(i)) + bits);
      }
      for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512})
        if (supports(level)) {
          INFO(name_of(level) << ", " << name_of(dtype) << ", count " << count);
          CHECK(cpu::kernels(level).hash(bytes.data(), dtype, count, first) == expected);
        }
    }
}

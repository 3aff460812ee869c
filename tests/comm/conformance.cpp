#include "tests/comm/conformance.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>

#include "comm/slices.h"

namespace zero::comm::testing {
namespace {

constexpr std::int64_t gap = 5;  // elements between slices if a stride is tested

struct Case {
  Operation operation = Operation::barrier;
  DType dtype = DType::fp32;
  std::int64_t count = 0;
  std::int64_t stride = 0;
  ReduceGroups groups = 1;
  bool in_place = false;
  int root = 0;
  std::uint64_t seed = 0;

  std::int64_t step() const { return stride == 0 ? count : stride; }
};

std::string text_of(const Case& c, const Communicator& communicator) {
  return std::string(name_of(c.operation)) + " of " + std::to_string(c.count) + " " +
         name_of(c.dtype) + ", stride " + std::to_string(c.stride) + ", reduce groups " +
         text_of(c.groups) + (c.in_place ? ", in place" : "") + ", root " + std::to_string(c.root) +
         ", rank " + std::to_string(communicator.rank()) + " of " +
         std::to_string(communicator.size()) + " over " + std::string(communicator.transport());
}

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns finite values of both signs within a few binades; one in eight is denormal.
template <class T>
T value_of(std::uint64_t random);

template <>
float value_of<float>(std::uint64_t random) {
  auto bits = static_cast<std::uint32_t>(random) & 0x807fffffu;
  if (random >> 61 != 0) bits |= static_cast<std::uint32_t>(120 + (random >> 40) % 16) << 23;
  return std::bit_cast<float>(bits);
}
template <>
bf16 value_of<bf16>(std::uint64_t random) {
  auto bits = static_cast<std::uint32_t>(random) & 0x807fu;
  if (random >> 61 != 0) bits |= static_cast<std::uint32_t>(120 + (random >> 40) % 16) << 7;
  return {static_cast<std::uint16_t>(bits)};
}
template <>
fp16 value_of<fp16>(std::uint64_t random) {
  auto bits = static_cast<std::uint32_t>(random) & 0x83ffu;
  if (random >> 61 != 0) bits |= static_cast<std::uint32_t>(1 + (random >> 40) % 24) << 10;
  return {static_cast<std::uint16_t>(bits)};
}
template <>
std::int64_t value_of<std::int64_t>(std::uint64_t random) {
  return static_cast<std::int64_t>(random);
}

template <>
std::uint8_t value_of<std::uint8_t>(std::uint64_t random) {
  return static_cast<std::uint8_t>(random);
}

template <class T>
T sample(const Case& c, int rank, std::int64_t index) {
  return value_of<T>(mixed(
      c.seed ^ mixed(static_cast<std::uint64_t>(rank) << 40 ^ static_cast<std::uint64_t>(index))));
}

// Sums of this many neighboring values each.
template <class T>
std::vector<T> sums_of(const std::vector<T>& values, std::size_t neighbors) {
  std::vector<T> sums;
  for (std::size_t first = 0; first < values.size(); first += neighbors) {
    float sum = to_float(values[first]);
    for (std::size_t i = first + 1; i < std::min(values.size(), first + neighbors); ++i)
      sum = sum + to_float(values[i]);
    sums.push_back(from_float<T>(sum));
  }
  return sums;
}
template <class T>
T summed(std::vector<T> values, const ReduceGroups& groups) {
  int inner = 1;
  for (const int size : groups.sizes) {
    if (size == 0) break;
    values = sums_of(values, static_cast<std::size_t>(size / inner));
    inner = size;
  }
  return sums_of(values, values.size()).front();
}
template <>
std::int64_t summed(std::vector<std::int64_t> values, const ReduceGroups&) {
  std::uint64_t total = 0;
  for (const std::int64_t value : values) total += static_cast<std::uint64_t>(value);
  return static_cast<std::int64_t>(total);
}

template <>
std::uint8_t summed(std::vector<std::uint8_t>, const ReduceGroups&) {
  throw std::logic_error("bytes have no sum");
}

template <class T>
T sum_of_samples(const Case& c, int ranks, std::int64_t index) {
  std::vector<T> values;
  for (int r = 0; r < ranks; ++r) values.push_back(sample<T>(c, r, index));
  return summed(values, c.groups);
}

template <class T>
class Run {
 public:
  Run(Communicator& communicator, const Case& c, const Buffers& buffers)
      : comm_(communicator), case_(c), n_(communicator.size()), rank_(communicator.rank()) {
    const std::int64_t elements = n_ * case_.step() + gap;
    for (int number : {0, 1}) {
      // Starts one element in, so that nothing is aligned beyond its own size.
      data_[number] =
          static_cast<T*>(buffers(number, (elements + 1) * std::int64_t{sizeof(T)})) + 1;
      std::memset(static_cast<void*>(data_[number]), 0x5a,
                  static_cast<std::size_t>(elements) * sizeof(T));
    }
    expected_.resize(static_cast<std::size_t>(elements));
    std::memset(static_cast<void*>(expected_.data()), 0x5a, expected_.size() * sizeof(T));
  }

  void check() {
    const Traffic before = comm_.traffic();
    switch (case_.operation) {
      case Operation::all_gather:
        all_gather();
        break;
      case Operation::reduce_scatter:
        reduce_scatter();
        break;
      case Operation::all_reduce:
        all_reduce();
        break;
      case Operation::broadcast:
        broadcast();
        break;
      case Operation::all_to_all:
        all_to_all();
        break;
      case Operation::barrier:
        comm_.barrier();
        break;
    }
    check_traffic(before);
  }

 private:
  T* slice(T* base, int r) { return base + r * case_.step(); }
  T& expected(std::int64_t index) { return expected_[static_cast<std::size_t>(index)]; }

  void all_gather() {
    T* recv = data_[0];
    T* send = case_.in_place ? slice(recv, rank_) : data_[1];
    for (std::int64_t i = 0; i < case_.count; ++i) send[i] = sample<T>(case_, rank_, i);
    comm_.all_gather(send, recv, case_.count, case_.dtype, case_.stride);
    for (int r = 0; r < n_; ++r)
      for (std::int64_t i = 0; i < case_.count; ++i)
        expected(r * case_.step() + i) = sample<T>(case_, r, i);
    compare(recv, n_ * case_.step() + gap);
  }

  void reduce_scatter() {
    T* send = data_[0];
    for (int r = 0; r < n_; ++r)
      for (std::int64_t i = 0; i < case_.count; ++i) {
        slice(send, r)[i] = sample<T>(case_, rank_, r * case_.count + i);
        expected(r * case_.step() + i) = slice(send, r)[i];
      }
    T* recv = case_.in_place ? slice(send, rank_) : data_[1];
    comm_.reduce_scatter(send, recv, case_.count, case_.dtype, case_.stride);
    const auto sum = [&](std::int64_t i) {
      return sum_of_samples<T>(case_, n_, rank_ * case_.count + i);
    };
    if (case_.in_place)
      for (std::int64_t i = 0; i < case_.count; ++i) expected(rank_ * case_.step() + i) = sum(i);
    compare(send, n_ * case_.step() + gap);
    if (case_.in_place) return;
    for (std::int64_t i = 0; i < case_.count; ++i) expected(i) = sum(i);
    compare(recv, case_.count);
  }

  void all_reduce() {
    T* data = data_[0];
    for (std::int64_t i = 0; i < case_.count; ++i) {
      data[i] = sample<T>(case_, rank_, i);
      expected(i) = sum_of_samples<T>(case_, n_, i);
    }
    comm_.all_reduce(data, case_.count, case_.dtype);
    compare(data, case_.count + gap);
  }

  void broadcast() {
    T* data = data_[0];
    for (std::int64_t i = 0; i < case_.count; ++i) {
      data[i] = sample<T>(case_, rank_, i);
      expected(i) = sample<T>(case_, case_.root, i);
    }
    comm_.broadcast(data, case_.count, case_.dtype, case_.root);
    compare(data, case_.count + gap);
  }

  void all_to_all() {
    T* send = data_[0];
    T* recv = data_[1];
    for (int r = 0; r < n_; ++r)
      for (std::int64_t i = 0; i < case_.count; ++i) {
        send[r * case_.count + i] = sample<T>(case_, rank_, r * case_.count + i);
        expected(r * case_.count + i) = sample<T>(case_, r, rank_ * case_.count + i);
      }
    comm_.all_to_all(send, recv, case_.count, case_.dtype);
    compare(recv, n_ * case_.count + gap);
    uneven_all_to_all();
  }

  // Some ranks send nothing to some others, and no two send the same amount.
  std::int64_t uneven(std::int64_t from, std::int64_t to) const {
    return (from + 2 * to) % 3 == 0 ? 0 : case_.count * (1 + from) / (n_ + to);
  }

  void uneven_all_to_all() {
    PairCounts counts(static_cast<int>(n_));
    for (int from = 0; from < n_; ++from)
      for (int to = 0; to < n_; ++to) counts.add(from, to, uneven(from, to));
    T* send = data_[0];
    T* recv = data_[1];
    std::memset(static_cast<void*>(recv), 0x5a, expected_.size() * sizeof(T));
    std::memset(static_cast<void*>(expected_.data()), 0x5a, expected_.size() * sizeof(T));
    std::int64_t sent = 0, received = 0;
    for (int r = 0; r < n_; ++r) {
      for (std::int64_t i = 0; i < uneven(rank_, r); ++i)
        send[sent++] = sample<T>(case_, rank_, r * case_.count + i);
      for (std::int64_t i = 0; i < uneven(r, rank_); ++i)
        expected(received++) = sample<T>(case_, r, rank_ * case_.count + i);
    }
    const Traffic before = comm_.traffic();
    comm_.all_to_all(send, recv, counts, case_.dtype);
    compare(recv, n_ * case_.count + gap);
    constexpr auto index = static_cast<std::size_t>(Operation::all_to_all);
    const std::int64_t bytes = (sent - uneven(rank_, rank_)) * size_of(case_.dtype);
    if (comm_.traffic().bytes_sent[index] - before.bytes_sent[index] != bytes)
      throw std::runtime_error(text_of(case_, comm_) + ": the traffic of uneven counts is wrong");
    comm_.all_to_all(recv, send, counts.reversed(), case_.dtype);
    std::int64_t back = 0;
    for (int r = 0; r < n_; ++r)
      for (std::int64_t i = 0; i < uneven(rank_, r); ++i)
        expected(back++) = sample<T>(case_, rank_, r * case_.count + i);
    compare(send, back);
    calls_ = 3, bytes_ = bytes + (received - uneven(rank_, rank_)) * size_of(case_.dtype);
  }

  void compare(const T* got, std::int64_t elements) {
    const auto bytes = static_cast<std::size_t>(elements) * sizeof(T);
    if (std::memcmp(got, expected_.data(), bytes) == 0) return;
    std::int64_t i = 0;
    while (std::memcmp(got + i, &expected(i), sizeof(T)) == 0) ++i;
    throw std::runtime_error(text_of(case_, comm_) + ": element " + std::to_string(i) +
                             " is wrong");
  }

  void check_traffic(const Traffic& before) {
    const auto index = static_cast<std::size_t>(case_.operation);
    const std::int64_t bytes = case_.count * size_of(case_.dtype);
    const std::int64_t own = slice_of(case_.count, n_, rank_).count * size_of(case_.dtype);
    std::int64_t sent = (n_ - 1) * bytes;
    if (case_.operation == Operation::all_reduce) sent = bytes - own + (n_ - 1) * own;
    if (case_.operation == Operation::broadcast && rank_ != case_.root) sent = 0;
    if (case_.operation == Operation::barrier) sent = 0;
    sent += bytes_;
    if (comm_.traffic().bytes_sent[index] - before.bytes_sent[index] != sent ||
        comm_.traffic().calls[index] - before.calls[index] != calls_)
      throw std::runtime_error(text_of(case_, comm_) + ": the traffic is wrong");
    // The plain transports must take the path chosen by the count, including the tree's.
    const std::int64_t moved =
        comm_.traffic().bytes_inside_node[index] - before.bytes_inside_node[index] +
        comm_.traffic().bytes_between_nodes[index] - before.bytes_between_nodes[index];
    const bool messages = comm_.transport() == "mpi" || comm_.transport() == "gloo";
    const bool tree = messages && case_.operation == Operation::broadcast;
    // Digests are sent too.
    const bool more = comm_.terms().verify && messages;
    const bool small = messages && case_.operation == Operation::all_reduce;
    if (moved != sent && !tree && !small && !more && comm_.transport() != "hierarchical" &&
        comm_.transport() != "nccl")
      throw std::runtime_error(text_of(case_, comm_) + ": the path's traffic is wrong");
  }

  Communicator& comm_;
  const Case& case_;
  std::int64_t n_;
  int rank_;
  T* data_[2] = {};
  std::int64_t calls_ = 1, bytes_ = 0;  // bytes beyond those of the case's own call
  std::vector<T> expected_;
};

void run_case(Communicator& communicator, const Case& c, const Buffers& buffers) {
  communicator.set_reduce_groups(c.groups);
  communicator.set_subject("case");
  switch (c.dtype) {
    case DType::fp32:
      return Run<float>(communicator, c, buffers).check();
    case DType::bf16:
      return Run<bf16>(communicator, c, buffers).check();
    case DType::fp16:
      return Run<fp16>(communicator, c, buffers).check();
    case DType::int64:
      return Run<std::int64_t>(communicator, c, buffers).check();
    case DType::uint8:
      return Run<std::uint8_t>(communicator, c, buffers).check();
  }
}

std::vector<Case> variants_of(Operation operation, std::int64_t count, int ranks) {
  const bool strided = operation == Operation::all_gather || operation == Operation::reduce_scatter;
  const bool sums = operation == Operation::reduce_scatter || operation == Operation::all_reduce;
  std::vector<ReduceGroups> groups = {ranks};
  for (const int group : {1, 2, 3})
    if (sums && group < ranks) groups.emplace_back(group);
  ReduceGroups nested = 1;
  nested.sizes[1] = 2, nested.sizes[2] = 4;
  if (sums && ranks > 2) groups.push_back(nested);
  std::set<int> roots = {0};
  if (operation == Operation::broadcast) roots.insert(ranks - 1);
  std::vector<Case> cases;
  for (const ReduceGroups& group : groups)
    for (const int root : roots)
      for (const bool in_place : {false, true})
        for (const std::int64_t stride : {std::int64_t{0}, count + gap}) {
          if (!strided && (in_place || stride != 0)) continue;
          // Large counts are many bytes, so one variant of each kind suffices.
          if (count > 10'000 &&
              (group != ReduceGroups(std::min(2, ranks)) || in_place != (stride != 0)) && sums)
            continue;
          cases.push_back({operation, DType::fp32, count, stride, group, in_place, root, 0});
        }
  return cases;
}

}  // namespace

std::int64_t largest_buffer(const Suite& suite, int ranks) {
  const std::int64_t count = *std::max_element(suite.counts.begin(), suite.counts.end());
  return ((count + gap) * ranks + gap + 1) * 8;
}

int run_suite(Communicator& communicator, const Suite& suite, const Buffers& buffers) {
  int cases = 0;
  const int operations = suite.barriers ? operation_count : operation_count - 1;  // the last one
  for (int operation = 0; operation < operations; ++operation)
    for (const std::int64_t count : suite.counts)
      for (Case c : variants_of(static_cast<Operation>(operation), count, communicator.size()))
        for (const DType dtype : suite.dtypes) {
          if (dtype == DType::uint8 &&
              (c.operation == Operation::reduce_scatter || c.operation == Operation::all_reduce))
            continue;
          c.dtype = dtype;
          c.seed = static_cast<std::uint64_t>(++cases);
          run_case(communicator, c, buffers);
        }
  return cases;
}

void check_splits(Communicator& communicator) {
  const int n = communicator.size(), rank = communicator.rank();
  const auto require = [](bool good, const char* what) {
    if (!good) throw std::runtime_error(std::string("split: ") + what);
  };
  std::vector<std::byte> memory[2];
  const Buffers buffers = [&](int number, std::int64_t bytes) {
    auto& buffer = memory[number];
    if (static_cast<std::int64_t>(buffer.size()) < bytes)
      buffer.resize(static_cast<std::size_t>(bytes));
    return static_cast<void*>(buffer.data());
  };
  const Suite small{{1, 129, 5000}, {DType::fp32, DType::bf16}};

  // Reversed, so the highest rank of each parity comes first.
  const auto parity = communicator.split(rank % 2, -rank);
  const int members = n / 2 + (rank % 2 == 0 ? n % 2 : 0);
  require(parity->size() == members, "wrong size");
  require(parity->rank() == members - 1 - rank / 2, "wrong order");
  require(members > 1 || parity->transport() == "self", "a group of one is not self");
  run_suite(*parity, small, buffers);

  const auto same = parity->split(7, 0);
  require(same->size() == members && same->rank() == parity->rank(), "equal keys lose the order");
  run_suite(*same, small, buffers);

  const auto pairs = communicator.split(rank / 2, 0);  // neighbors, often on one node
  run_suite(*pairs, small, buffers);

  const auto alone = communicator.split(rank, 0);
  require(alone->size() == 1 && alone->transport() == "self", "a group of one is not self");
  run_suite(communicator, small, buffers);
}

}  // namespace zero::comm::testing

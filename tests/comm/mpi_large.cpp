// Vectors that exceed MPI's counts: mpi_large TRANSPORT. Slices of more than 2^31 bytes are reduced
// and gathered, and more than 2^31 elements are broadcast; the last elements must be right.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "comm/world.h"
#include "tests/comm/long_buffer.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::comm;
using zero::comm::testing::LongBuffer;

constexpr std::int64_t tail = 1001;  // elements beyond a power of two
constexpr std::int64_t piece = LongBuffer::piece / 2;

bf16* elements(std::byte* bytes) {
  return reinterpret_cast<bf16*>(bytes);
}

void set(LongBuffer& buffer, float body, float last) {
  std::fill_n(elements(buffer.data()), piece, from_float<bf16>(body));
  std::fill_n(elements(buffer.tail()), piece, from_float<bf16>(last));
}

void expect(LongBuffer& buffer, std::int64_t count, float value, const char* what) {
  for (std::int64_t i = 0; i < count; ++i)
    if (to_float(elements(buffer.tail())[i]) != value)
      throw std::runtime_error(std::string(what) + ": the tail is wrong at " + std::to_string(i));
}

void run(Communicator& comm) {
  const int n = comm.size(), last = n - 1;
  const std::int64_t slice = (std::int64_t{1} << 30) + tail;
  const std::int64_t pieces = (std::int64_t{1} << 30) * n / piece;
  const std::int64_t beyond = n * slice - pieces * piece;
  LongBuffer whole(pieces), own((std::int64_t{1} << 30) / piece);

  set(whole, 1.0F, 2.0F);
  comm.reduce_scatter(whole.data(), own.data(), slice, DType::bf16);
  if (comm.rank() == last) expect(own, tail, 2.0F * static_cast<float>(n), "reduce_scatter");

  set(own, 3.0F, 4.0F + static_cast<float>(comm.rank()));
  comm.all_gather(own.data(), whole.data(), slice, DType::bf16);
  if (to_float(elements(whole.tail())[beyond - 1]) != 4.0F + static_cast<float>(last))
    throw std::runtime_error("all_gather: the last element is wrong");

  set(whole, comm.rank() == 0 ? 5.0F : 0.0F, comm.rank() == 0 ? 6.0F : 0.0F);
  comm.broadcast(whole.data(), n * slice, DType::bf16, 0);
  expect(whole, beyond, 6.0F, "broadcast");
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<World> world;
  try {
    WorldOptions options;
    if (argc > 1) options.transport = argv[1];
    world = create_world(argc, argv, options);
    run(world->communicator());
    if (world->communicator().rank() == 0)
      std::printf("right over %s\n", world->describe().c_str());
    return 0;
  } catch (const std::exception& error) {
    if (!world || world->fail(error.what(), 70)) std::fprintf(stderr, "%s\n", error.what());
    if (world) world->abort(70);
    return 70;
  }
}

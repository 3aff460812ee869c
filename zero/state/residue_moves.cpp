#include "zero/state/residue_moves.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "comm/wire/layout.h"
#include "zero/plan/engine_plan.h"

namespace zero::detail {

namespace {

// Adjacent elements of a parameter with adjacent residues on one rank.
struct Piece {
  std::int64_t begin = 0, count = 0;  // elements of the parameter, filled up to blocks
  int rank = 0;
  Residues::Place place;
};

// Key: exchange and parameter.
using Pieces = std::map<std::pair<int, int>, std::vector<Piece>>;

void add_pieces(const Model& model, const Layout& layout, const Residues& residues, int rank,
                Pieces& pieces) {
  for (const SegmentId& id : layout.segments())
    for (int exchange = 0; exchange < exchange_count; ++exchange)
      for (const Residues::Slice& slice : residues.slices(id, exchange, rank)) {
        const std::int64_t block = residues.codec(exchange).block;
        for (const ParamRange& part : params_in(model, layout.segment(id), slice.elements))
          pieces[{exchange, part.param}].push_back(
              {part.param_begin, (part.count + block - 1) / block * block, rank,
               residues.place(id, exchange,
                              slice.begin + part.segment_begin - slice.elements.begin)});
      }
}

// Returns the ranks that may hold residues of the same sums as this rank: those of the groups that
// have summed its gradients.
std::vector<int> holders(const StatePolicy& policy) {
  const int group = std::max(
      {1, policy.first_sum_ranks(), policy.grid.replicas() > 1 ? policy.grid.shard_ranks : 1});
  std::vector<int> ranks;
  for (int r = 0; r < group; ++r) ranks.push_back(policy.rank / group * group + r);
  return ranks;
}

bool of_same_sums(const StatePolicy& policy, int exchange, int rank) {
  if (exchange == exchange_inside) return rank == policy.rank;
  const int group =
      exchange == exchange_over_groups ? policy.grid.shard_ranks : policy.first_sum_ranks();
  return rank / group == policy.rank / group;
}

void add_moves(const Piece& saved, const Piece& own, std::int64_t block,
               std::vector<ResidueMove>& moves) {
  const Range both =
      intersection({saved.begin, saved.begin + saved.count}, {own.begin, own.begin + own.count});
  if (both.empty()) return;
  const std::int64_t from = both.begin - saved.begin, to = both.begin - own.begin;
  const std::int64_t scale = size_of(DType::fp32);
  moves.push_back({saved.rank, saved.place.codes + from, own.place.codes + to, both.count()});
  moves.push_back({saved.rank, saved.place.scales + from / block * scale,
                   own.place.scales + to / block * scale, both.count() / block * scale});
}

}  // namespace

std::optional<Layout> layout_of(const Model& model, const RankGrid& grid,
                                const std::vector<SavedPlace>& places) {
  Layout layout;
  layout.grid = grid;
  std::vector<Segment>& segments = layout.flat_units.emplace_back().segments;
  for (const auto& [param, number, slice, offset] : places) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 16 / grid.ranks;
    if (param < 0 || number >= std::ssize(model.params) || slice > most ||
        offset > slice * grid.ranks - model.params[param].elements)
      return std::nullopt;
    segments.resize(std::max<std::size_t>(segments.size(), number + 1));
    segments[number].slice = slice;
    segments[number].length = slice * grid.ranks;
    segments[number].params.push_back({param, offset});
  }
  for (int s = 0; s < std::ssize(segments); ++s) layout.segment_ids.push_back({0, s});
  return layout;
}

std::vector<ResidueMove> residue_moves(const Model& model, const EnginePlan& plan,
                                       const Layout& saved) {
  const StatePolicy& policy = plan.policy;
  const Layout& own = plan.layout;
  Pieces before, now;
  const Residues as_saved(Routes(plan, saved), policy), as_own(plan.routes, policy);
  for (const int rank : holders(policy)) add_pieces(model, saved, as_saved, rank, before);
  add_pieces(model, own, as_own, policy.rank, now);
  std::vector<ResidueMove> moves;
  for (const auto& [key, pieces] : now)
    for (const Piece& piece : pieces)
      for (const Piece& other : before[key])
        if (of_same_sums(policy, key.first, other.rank))
          add_moves(other, piece, as_own.codec(key.first).block, moves);
  std::ranges::sort(moves);
  return moves;
}

}  // namespace zero::detail

// The parts of a draw. Its terms are the settings on which bits may depend according to the docs;
// its other settings are free: runs of the same terms have the same bits.
#pragma once

#include <string>
#include <vector>

#include "tests/random/dice.h"
#include "tests/support/toy_model.h"
#include "zero/config.h"

namespace random_draws {

// A strategy: the sharded arrays, and the ranks over which they are sharded.
struct Row {
  int stage = 0;
  bool reshards = true;
  int shard_group = 0;  // ranks; 0: not given
  bool optimizer_over_all_ranks = false;
  int second_copies = 0;  // ranks that share one; 0: not given
};

struct Terms {
  int ranks = 1;
  toy::Dims dims;
  zero::Text keys;          // of the config
  int accumulation = 1;     // micro steps
  std::vector<int> groups;  // ranks whose sums are formed first, and so on; empty: all at once
  std::string sync;         // gradient_sync; with one micro step it is free
  int inner = 0;            // with `inner`, ranks per group
  bool by_elements = true;  // so that optimizer state can be offloaded to a file
  bool gathers_encoded = false, reduces_encoded = false;
  bool stage3_alone = false;  // has keys of ZeRO++, which have an effect there
  bool persistence_free = true;
  // A format inside nodes has another effect in shard groups of one node than in groups over
  // several.
  enum class Inside { same, in_node, over_nodes } inside = Inside::same;
};

struct Setting {
  Row row;
  zero::Text keys;  // of the config, including those of the row
  std::string executor = "inline";
  bool strict = false, delays = false;
  bool looks = false;  // evaluates, reads and saves between steps
};

std::string text_of(const Terms&);
std::string text_of(const Setting&);

Terms draw_terms(Dice&);
// Returns the same training run on other ranks.
Terms on_other_ranks(Dice&, const Terms&);
// `directory` is for files of offloaded state.
Setting draw_setting(Dice&, const Terms&, const std::string& directory);
// Draws any keys, also contradictory ones.
Setting draw_any(Dice&, Terms&, const std::string& directory);

zero::Config config_of(const Terms&, const Setting&);

}  // namespace random_draws

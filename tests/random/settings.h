// What a draw consists of. Its terms are what the docs let bits depend on; its settings are free:
// runs of the same terms have the same bits, whatever their settings.
#pragma once

#include <string>
#include <vector>

#include "tests/random/dice.h"
#include "tests/support/toy_model.h"
#include "zero/config.h"

namespace random_draws {

// What is sharded, and over which ranks.
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
  int inner = 0;            // with `inner`, ranks of a group
  bool by_elements = true;  // so the optimizer's state can rest in a file
  bool gathers_encoded = false, reduces_encoded = false;
  bool stage3_alone = false;  // keys of ZeRO++, which act there
  bool persistence_free = true;
  // A format inside nodes acts in shard groups of a node otherwise than over several nodes.
  enum class Inside { same, in_node, over_nodes } inside = Inside::same;
};

struct Setting {
  Row row;
  zero::Text keys;  // of the config, with those of the row
  std::string executor = "inline";
  bool strict = false, delays = false;
  bool looks = false;  // evaluates, reads and saves between steps
};

std::string text_of(const Terms&);
std::string text_of(const Setting&);

Terms draw_terms(Dice&);
// The same training on other ranks.
Terms on_other_ranks(Dice&, const Terms&);
// `directory` is for what rests in a file.
Setting draw_setting(Dice&, const Terms&, const std::string& directory);
// Any keys, also such as contradict each other.
Setting draw_any(Dice&, Terms&, const std::string& directory);

zero::Config config_of(const Terms&, const Setting&);

}  // namespace random_draws

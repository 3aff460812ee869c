// Keys that no row of the table has. DeepSpeed refuses them in some sections and passes over them
// in the others, where a slip would change a run in silence.
#include <algorithm>

#include "config_schemas/resolve.h"
#include "config_schemas/values.h"

namespace zero::config_schemas {
namespace {

// A guess costs time, which a hostile file must not multiply.
constexpr std::size_t most_guesses = 100;
constexpr std::size_t most_named = 20;  // in one notice

class StrayCheck {
 public:
  StrayCheck(const Resolution& resolution, ProblemList& problems)
      : resolution_(resolution), problems_(problems) {}

  void examine(const Stray& stray) {
    if (is_closed(stray.section))
      problems_.unknown_key(stray.member->position, stray.path);
    else if (guesses_++ < most_guesses)
      weigh(stray, guess_key(stray.path));
    else
      passed_over_.push_back(printable(stray.path));
  }

  std::vector<std::string> notices() {
    if (!passed_over_.empty())
      notices_.push_back(
          listed(passed_over_) +
          ": no effect here: DeepSpeed knows no such key either, and passes over it");
    return std::move(notices_);
  }

 private:
  void weigh(const Stray& stray, const Guess& guess) {
    const Position at = stray.member->position;
    switch (guess.kind) {
      case Guess::Kind::slip:
        problems_.unknown_key(at, stray.path, guess);
        return;
      case Guess::Kind::part:
        if (find(resolution_.given, guess.key->path) == nullptr &&
            demand(*guess.key, stray.member->value) == Demand::effect)
          problems_.unknown_key(at, stray.path, guess);
        else
          passed_over_.push_back(printable(stray.path));
        return;
      case Guess::Kind::elsewhere:
        misplaced(stray, guess);
        return;
      default:
        passed_over_.push_back(printable(stray.path));
    }
  }

  void misplaced(const Stray& stray, const Guess& guess) {
    switch (demand(*guess.key, stray.member->value)) {
      case Demand::effect:
        problems_.add(stray.member->position, printable(stray.path) +
                                                  ": DeepSpeed passes over it here; " +
                                                  place_of(*guess.key, guess.path));
        return;
      case Demand::nothing:
        notices_.push_back(printable(stray.path) + ": its place is " + guess.path +
                           "; here it has no effect, and there it would change nothing");
        return;
      case Demand::other:
        passed_over_.push_back(printable(stray.path));
    }
  }

  static std::string place_of(const Key& key, const std::string& path) {
    if (key.status == Status::refused)
      return "its place would be " + path + ": " + std::string(key.reason);
    return "its place is " + (key.status == Status::replaced ? std::string(key.reason) : path);
  }

  // What a value would do to the run if it stood where its key belongs.
  enum class Demand : std::uint8_t {
    nothing,  // what is done anyway
    effect,
    other,  // it is no value of that key, so the name means another
  };

  Demand demand(const Key& key, const Node& node) const {
    const auto effect_if = [](bool acts) { return acts ? Demand::effect : Demand::nothing; };
    if (key.type == Type::section || key.type == Type::block) {
      if (node.kind != Node::Kind::object) return Demand::other;
      if (key.type == Type::block)
        return effect_if(key.status != Status::no_effect && !node.members.empty());
      return effect_if(std::ranges::any_of(node.members, [&](const Member& member) {
        const Key* inside = find_key(key.path, member.key);
        return inside != nullptr && demand(*inside, member.value) == Demand::effect;
      }));
    }
    if (key.status == Status::no_effect) return Demand::nothing;
    Config config = resolution_.config;
    const Outcome outcome = set_value(key, "", node, config);
    if (!outcome.problem.empty()) return Demand::other;
    if (key.status == Status::replaced) return effect_if(outcome.shown == "true");
    if (key.status == Status::refused)
      return effect_if(!asks_for_nothing(key, outcome.shown, resolution_.config));
    Config effective = resolution_.config;
    return effect_if(outcome.shown != show_value(key, "", effective));
  }

  static std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), most_named); ++i)
      text += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > most_named)
      text += " and " + std::to_string(names.size() - most_named) + " more";
    return text;
  }

  const Resolution& resolution_;
  ProblemList& problems_;
  std::vector<std::string> notices_, passed_over_;
  std::size_t guesses_ = 0;
};

}  // namespace

std::vector<std::string> check_strays(const std::vector<Stray>& strays,
                                      const Resolution& resolution, ProblemList& problems) {
  StrayCheck check(resolution, problems);
  for (const Stray& stray : strays) check.examine(stray);
  return check.notices();
}

}  // namespace zero::config_schemas

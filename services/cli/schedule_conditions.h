// What bench schedule measures at: the models' times, the link and the cores.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace foretoken::cli {

enum class Cores : std::uint8_t { kOwn, kShared };  // of draft and target
inline constexpr std::array<std::string_view, 2> kCoresNames{"own", "same"};
constexpr const auto& names_of(Cores) { return kCoresNames; }

struct ScheduleConditions {
  double target_ms = 6;
  double cost = 0.05;
  double acceptance = 0.8;
  double rtt_ms = 0;
  Cores cores = Cores::kOwn;
  bool synchronous = false;  // the draft waits for questions, on cores of its own too
  int branches = 3;          // texts beside its chain, of a draft that runs ahead

  bool runs_ahead() const { return cores == Cores::kOwn && !synchronous; }
  int n_branches() const { return runs_ahead() ? branches : 0; }
};

}  // namespace foretoken::cli

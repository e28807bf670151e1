// The preconditions of every op, each said once. A breach is our own mistake, so it aborts with the
// condition. What can be judged from host values is checked for every backend by check(); what lies
// in device memory (ids, positions, slots, tables) only where it can be read: a CPU backend calls
// check_contents() as well.
#pragma once

#include <span>

#include "kernels/include/ops.h"
#include "kernels/include/types.h"

namespace foretoken::contract {

// Types, sizes and stacking, whether or not contents are there.
void check_sizes(std::span<const LinearSource> sources, Stacking stacking);
void check(std::span<const LinearSource> sources, Stacking stacking);
void check(const EmbedArgs& args);
void check(const QkvRopeAppendArgs& args);
void check(const AttnPagedArgs& args);
void check(const MatmulResidualArgs& args);
void check(const GateUpSwigluArgs& args);
void check(const LmHeadArgs& args);
void check(const SpreadArgs& args);
void check(const ChooseArgs& args);
void check(const AcceptArgs& args);
void check(const AdvanceArgs& args);

void check_contents(const EmbedArgs& args);
void check_contents(const QkvRopeAppendArgs& args);
void check_contents(const AttnPagedArgs& args);
void check_contents(const SpreadArgs& args);
void check_contents(const ChooseArgs& args);
void check_contents(const AcceptArgs& args);
void check_contents(const AdvanceArgs& args);

}  // namespace foretoken::contract

// completion: what a shell reads to complete the command line. Each script passes the words on to
// `foretoken complete`.
#include <iostream>

#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

// bash cuts words at "=" and ":", so they are joined again, and what stands before the last cut is
// taken off again.
constexpr const char* kBash =
    R"(# bash completion for foretoken, printed by: foretoken completion bash
_foretoken() {
  local -a words=()
  local part line cut joined=0
  for part in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    if [[ $part =~ ^[=:]+$ && ${#words[@]} -gt 0 ]]; then
      words[-1]+=$part
      joined=1
    elif [[ $joined == 1 ]]; then
      words[-1]+=$part
      joined=0
    else
      words+=("$part")
    fi
  done
  cut=${words[-1]%"${words[-1]##*[=:]}"}
  COMPREPLY=()
  while IFS= read -r line; do
    line=${line%%$'\t'*}
    COMPREPLY+=("${line#"$cut"}")
  done < <("$1" complete -- "${words[@]}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace
  fi
}
complete -o default -F _foretoken foretoken
)";

constexpr const char* kZsh = R"(#compdef foretoken
# zsh completion for foretoken, printed by: foretoken completion zsh
_foretoken() {
  local -a whole open
  local line word meaning
  while IFS= read -r line; do
    word=${line%%$'\t'*}
    meaning=
    [[ $line == *$'\t'* ]] && meaning=:${line#*$'\t'}
    if [[ $word == *= ]]; then
      open+=("${word//:/\\:}$meaning")
    else
      whole+=("${word//:/\\:}$meaning")
    fi
  done < <("${words[1]}" complete -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)
  if (( ${#whole} + ${#open} == 0 )); then
    _files
    return
  fi
  (( ${#whole} )) && _describe foretoken whole
  (( ${#open} )) && _describe foretoken open -S ''
}
if [[ $funcstack[1] == _foretoken ]]; then
  _foretoken "$@"
else
  compdef _foretoken foretoken
fi
)";

constexpr const char* kFish =
    R"(# fish completion for foretoken, printed by: foretoken completion fish
function __foretoken_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete -- $words[2..-1] 2>/dev/null
end
# Files where the program has nothing to say.
complete -c foretoken -n 'count (__foretoken_complete) >/dev/null' -f -a '(__foretoken_complete)'
)";

}  // namespace

int run_completion(const CliOptions& options) {
  std::cout << (options.shell == "bash" ? kBash : options.shell == "zsh" ? kZsh : kFish);
  return kExitOk;
}

}  // namespace foretoken::cli

# shellcheck shell=sh
# install_packages INSTALL YES LIST...: sees to it that the Debian packages of the lists are there.
# INSTALL=0 never installs; YES=1 does not ask. Prints the one apt line when it may not or cannot install.
install_packages() {
  may_install=$1 may_assume=$2
  shift 2
  missing='' total=0
  # shellcheck disable=SC2013 # one word a line
  for package in $(grep -hv '^#' "$@"); do
    total=$((total + 1))
    [ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing="$missing $package"
  done
  if [ -z "$missing" ]; then echo "      all $total are there"; return 0; fi
  line="apt-get install -y --no-install-recommends$missing"
  echo "      missing:$missing"
  if [ "$may_install" = 0 ] || [ "$(id -u)" != 0 ]; then
    echo "error: packages are missing; as root run:" >&2
    echo "  $line" >&2
    exit 1
  fi
  if [ "$may_assume" != 1 ]; then
    if [ ! -t 0 ]; then
      echo "error: packages are missing and there is no terminal to ask on; run again with --yes" >&2
      exit 1
    fi
    printf '      install them now? [Y/n] '
    read -r answer
    case "$answer" in [nN]*) echo "  $line"; exit 1 ;; esac
  fi
  # Old package lists can name files that are gone, so the lists come first.
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of words on purpose
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}

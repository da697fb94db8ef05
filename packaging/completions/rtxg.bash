# SPDX-License-Identifier: MIT
# Completion of rtxg in bash. It asks rtxg itself (--help), so it knows each command and each option of the rtxg that is installed.

# Commands and options that the help of `rtxg WORDS...` names.
_rtxg_words()
{
	"${RTXG_COMPLETE:-rtxg}" "$@" --help 2>/dev/null | awk '
		match($0, /^ +--?[A-Za-z][A-Za-z-]*(, --[a-z][a-z-]*)?/) {
			n = split(substr($0, RSTART, RLENGTH), part, /[ ,]+/)
			for (i = 1; i <= n; i++)
				if (part[i] != "") print part[i]
			next
		}
		/^Commands/ { commands = 1; next }
		/^$/ { commands = 0 }
		commands && /^  [a-z]/ { print $1 }'
}

# Names of objects, a line each: what stands behind an option, or behind `rtxg vgpu set`.
_rtxg_names()
{
	case $1 in
	vgpu) "${RTXG_COMPLETE:-rtxg}" vgpu ls -n -o VGPU 2>/dev/null ;;
	gpu) "${RTXG_COMPLETE:-rtxg}" gpu ls -n -o GPU 2>/dev/null ;;
	pool) "${RTXG_COMPLETE:-rtxg}" pool ls -n -o POOL 2>/dev/null ;;
	esac
}

_rtxg()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word i names=
	local -a path=()

	# The command, and its subcommand: the first words that are no options. What follows -- is another program's.
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == -- ]]; then
			mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			return
		fi
		[[ $word != -* && ${#path[@]} -lt 2 ]] && path+=("$word")
	done
	case ${path[0]} in
	vgpu | gpu | pool | host | order) ;;
	*) path=("${path[@]:0:1}") ;;
	esac
	case $prev in
	-v | --vgpu) names=$(_rtxg_names vgpu) ;;
	-g | --gpu) names=$(_rtxg_names gpu) ;;
	--fail) names='open closed' ;;
	--textfile | --proc | --trace)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	*)
		names=$(_rtxg_words "${path[@]}")
		[[ ${#path[@]} -eq 2 && $cur != -* ]] && names+=$'\n'$(_rtxg_names "${path[0]}")
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$names" -- "$cur")
}
complete -o bashdefault -o default -F _rtxg rtxg

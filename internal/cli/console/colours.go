package console

import (
	"charm.land/lipgloss/v2"
)

var (
	StyleAllow = lipgloss.NewStyle().Foreground(lipgloss.Color("2")).Bold(true)
	StyleDeny  = lipgloss.NewStyle().Foreground(lipgloss.Color("1")).Bold(true)
	StyleWarn  = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
	StyleFaint = lipgloss.NewStyle().Faint(true)
)

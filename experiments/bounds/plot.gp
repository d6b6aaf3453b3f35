# gnuplot: measured norms, our bounds and the paper's against s. Reads bounds.tsv, writes bounds.svg.
set encoding utf8
set terminal svg size 1180,470 font "DejaVu Sans,11" background "white"
set output "bounds.svg"
set datafile separator "\t"
set datafile missing "-"
set logscale xy
set format x "10^{%T}"
set format y "10^{%T}"
set grid back lt 1 lc rgb "#e4e4e4" lw 0.5
set border 3 lc rgb "#606060"
set tics nomirror textcolor rgb "#404040" font ",9"
set xlabel "number of masks s" font ",10"
set xrange [0.8:20000]
# Columns of bounds.tsv: 3 samples, 5 mean, 6 largest, 7 bound, 8 bound_mean, 9 paper.
rows(design, norm) = sprintf("< awk -F'\t' '$1 == \"%s\" && $2 == 16 && $4 == \"%s\"' bounds.tsv", design, norm)
set multiplot layout 1,3 margins 0.05,0.985,0.27,0.88 spacing 0.05,0 title "σ = 16, n = 4096, integer widths, 40 sets; bounds at δ = 0.01" font ",12"
titles = "'‖L* − M̃‖' '‖L* − M̃‖_{max}' 'largest block b_{max}'"
norms = "spectral max bmax"
do for [i = 1:3] {
    norm = word(norms, i)
    set title word(titles, i) font ",11"
    if (i == 1) { set key at screen 0.5, screen 0.14 center top maxrows 3 width 1 samplen 3 font ",10" } else { unset key }
    measured = i == 3 ? 6 : 5
    plot rows("iid", norm) using 3:9 with lines lw 1.6 dt 3 lc rgb "#707070" title "the paper's bound (iid)", \
         rows("iid", norm) using 3:7 with lines lw 1.8 lc rgb "#c2571a" title "our bound, iid", \
         rows("iid", norm) using 3:(i == 1 ? column(8) : NaN) with lines lw 1.4 dt 2 lc rgb "#c2571a" title "our bound on the mean, iid", \
         rows("iid", norm) using 3:measured with linespoints pt 7 ps 0.5 lw 0.8 lc rgb "#c2571a" title "measured, iid (mean; b_{max}: largest)", \
         rows("stratified", norm) using 3:(i > 1 ? column(7) : NaN) with lines lw 1.8 lc rgb "#2f6fd0" title "our bound, stratified (max norm: certain)", \
         rows("stratified", norm) using 3:measured with linespoints pt 7 ps 0.5 lw 0.8 lc rgb "#2f6fd0" title "measured, stratified"
}
unset multiplot

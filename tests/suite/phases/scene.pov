// Spheres of several materials on a plane: rows of the picture differ in cost.
camera { location <0, 2, -6> look_at <0, 1, 0> }
light_source { <5, 8, -6> rgb 1 }
light_source { <-6, 5, -4> rgb 0.4 }
plane { y, 0 pigment { checker rgb 1, rgb 0.2 } finish { reflection 0.2 } }
#declare I = 0;
#while (I < 12)
  sphere {
    <2.6 * sin(I * 0.9), 0.5 + mod(I, 4) * 0.5, 2.6 * cos(I * 0.9)>, 0.5
    pigment { rgbf <0.5 + 0.5 * sin(I), 0.6, 0.9, mod(I, 3) * 0.4> }
    finish { reflection 0.3 * mod(I, 2) phong 0.8 }
    interior { ior 1.4 }
  }
  #declare I = I + 1;
#end
